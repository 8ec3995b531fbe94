/**
 * A schedule as a short text: how it failed, after how many steps, a fingerprint of its trace, and the choices that are
 * not the natural one.
 *
 *     deadlock-24-1k9x3f-3.1_7.2    the fourth choice takes the second option, the eighth the third
 */

export interface Seed {
  readonly kind: string;
  readonly steps: number;
  readonly fingerprint: string;
  /** By position; a position that is missing takes choice 0. */
  readonly choices: ReadonlyMap<number, number>;
}

export function encodeSeed(kind: string, steps: number, trace: readonly string[], choices: readonly number[]): string {
  const unnatural = choices.flatMap((choice, at) => (choice === 0 ? [] : [`${at}.${choice}`]));
  return `${kind}-${steps}-${fingerprint(trace)}-${unnatural.join('_')}`;
}

export function decodeSeed(text: string): Seed {
  const [, kind, steps, print, pairs] = /^([a-z]+)-(\d+)-([0-9a-z]+)-((?:\d+\.\d+)?(?:_\d+\.\d+)*)$/.exec(text) ?? [];
  if (kind === undefined || steps === undefined || print === undefined || pairs === undefined) {
    throw new Error(`not a seed: '${text}'. A seed looks like deadlock-24-1k9x3f-3.1_7.2`);
  }
  const choices = new Map<number, number>();
  for (const pair of pairs === '' ? [] : pairs.split('_')) {
    const [at, choice] = pair.split('.').map(Number) as [number, number];
    choices.set(at, choice);
  }
  return { kind, steps: Number(steps), fingerprint: print, choices };
}

/** FNV-1a over the lines: enough to notice that a seed belongs to another model. */
export function fingerprint(trace: readonly string[]): string {
  let hash = 0x811c9dc5;
  for (const char of trace.join('\n')) {
    hash = Math.imul(hash ^ (char.codePointAt(0) as number), 0x01000193);
  }
  return (hash >>> 0).toString(36);
}
