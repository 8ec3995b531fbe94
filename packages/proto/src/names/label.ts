/**
 * Labels of names: segments of `[a-z0-9][a-z0-9._-]{0,62}`, joined by `/`, at most 255 bytes.
 *
 * Contract: each label has one spelling, and is safe as a path of a URL: no dot segment, no upper case, no percent encoding.
 * Functions that take client input do not throw.
 * Bound: `LABEL_BYTES_MAX`; longer input is refused by its length.
 */
export const LABEL_BYTES_MAX = 255;
/** Public keys are Ed25519. */
export const NAME_KEY_BYTES = 32;
/** A lookup follows this many moves of a name to another key. */
export const NAME_MOVES_MAX = 4;

const SEGMENT = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const LABEL = /^[a-z0-9][a-z0-9._-]{0,62}(?:\/[a-z0-9][a-z0-9._-]{0,62})*$/;
const KEY = /^[0-9a-f]{64}$/;
const WANTED =
  'a label consists of segments joined by "/"; a segment has 1 to 63 characters of a-z, 0-9, ".", "_" and "-", and begins with a letter or digit';

export type LabelResult =
  | { readonly ok: true; readonly label: string }
  | { readonly ok: false; readonly problem: string };

export function isLabel(input: unknown): input is string {
  return typeof input === 'string' && input.length <= LABEL_BYTES_MAX && LABEL.test(input);
}

/** As `isLabel`, with a reason for the client. The reason never repeats the input. */
export function checkLabel(input: unknown): LabelResult {
  if (isLabel(input)) return { ok: true, label: input };
  return { ok: false, problem: `${WANTED}; ${labelProblem(input)}` };
}

/** Whether `input` is a prefix of labels: empty, or whole segments. */
export function isLabelPrefix(input: unknown): input is string {
  return input === '' || isLabel(input);
}

/** Whether `label` is `prefix` or lies below it. The empty prefix covers all labels. */
export function hasPrefix(label: string, prefix: string): boolean {
  if (prefix === '' || label === prefix) return true;
  return label.startsWith(prefix) && label[prefix.length] === '/';
}

/** All prefixes of a label, the longest first: itself, its parents, the empty one. */
export function* prefixesOf(label: string): Generator<string, void, void> {
  for (let end = label.length; end > 0; end = label.lastIndexOf('/', end - 1)) yield label.slice(0, end);
  yield '';
}

/** Whether `input` is a public key of names in hex. */
export function isNameKey(input: unknown): input is string {
  return typeof input === 'string' && KEY.test(input);
}

function labelProblem(input: unknown): string {
  if (typeof input !== 'string') return `this is ${input === null ? 'null' : typeof input}, not a string`;
  if (input === '') return 'this is empty';
  if (input.length > LABEL_BYTES_MAX) return `this has more than ${LABEL_BYTES_MAX} characters`;
  if (/[A-Z]/.test(input)) return 'this has upper case';
  const at = input.split('/').findIndex((segment) => !SEGMENT.test(segment));
  const segment = input.split('/')[at] ?? '';
  if (segment === '') return `segment ${at + 1} is empty`;
  if (segment.length > 63) return `segment ${at + 1} has more than 63 characters`;
  if (!/^[a-z0-9]/.test(segment)) return `segment ${at + 1} does not begin with a letter or digit`;
  return `segment ${at + 1} has another character`;
}
