/** How many cases a property tries: the number given for an ordinary run, or `RON_FUZZ_RUNS` for a nightly-length one. */
export function fuzzRuns(usual: number): { numRuns: number } {
  const asked = Number(process.env['RON_FUZZ_RUNS']);
  return { numRuns: Number.isSafeInteger(asked) && asked > 0 ? asked : usual };
}
