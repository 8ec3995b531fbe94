/**
 * Header lines on their way through a proxy (RFC 9110, 7.6.1).
 *
 * Contract: removes the headers that concern one connection only, those that a `Connection` line names, and the names in
 * `drop`. Everything else keeps its order and its repetitions. Pure; one pass.
 */

const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** `raw` and the result are flat: name, value, name, value. `drop` is in lower case. */
export function endToEnd(raw: readonly string[], drop: ReadonlySet<string>): string[] {
  const named = namedByConnection(raw);
  const kept: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const lower = raw[i]!.toLowerCase();
    if (!HOP_BY_HOP.has(lower) && !named.has(lower) && !drop.has(lower)) kept.push(raw[i]!, raw[i + 1]!);
  }
  return kept;
}

function namedByConnection(raw: readonly string[]): ReadonlySet<string> {
  const named = new Set<string>();
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]!.length !== 10 || raw[i]!.toLowerCase() !== 'connection') continue;
    for (const name of raw[i + 1]!.split(',')) named.add(name.trim().toLowerCase());
  }
  // Framing is not for a client to remove.
  named.delete('content-length');
  return named;
}
