/**
 * The shell command that signs and sends a test delivery with `openssl` and `curl`.
 *
 * Contract: it reads the secret from a file, without the ASCII white space around it, as `ron` does, and works in any POSIX shell.
 * Values from the descriptor are quoted. While it runs, other users of the machine can read the secret in the arguments of
 * `openssl`: it is for tests.
 */
import type { Descriptor, GenericScheme } from '@ron/proto';

interface Signed {
  /** The signed bytes before the body, for a shell string in double quotes. */
  readonly before: string;
  /** Headers for a shell string in double quotes; `$G` is the signature. */
  readonly headers: readonly string[];
  readonly encoding: 'hex' | 'base64';
  readonly algorithm?: 'sha256' | 'sha512';
  /** The secret is base64 after `whsec_`. */
  readonly isDecoded?: boolean;
}

/** The variable with the time. The braces separate it from text that follows. */
const TIME = '${T}';
const BODY = '{"type":"test","id":"evt_\'$T\'"}';

/** Of the whole text: a secret may have inner line breaks. In single quotes, `!` means nothing to an interactive shell. */
const TRIM = String.raw`sed -e ':a' -e '$!{N' -e 'ba' -e '}' -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//'`;

const SCHEMES: Readonly<Record<Exclude<Descriptor['scheme'], 'generic'>, Signed>> = {
  github: { before: '', headers: ['X-Hub-Signature-256: sha256=$G', 'X-GitHub-Event: ping'], encoding: 'hex' },
  slack: {
    before: `v0:${TIME}:`,
    headers: ['X-Slack-Signature: v0=$G', 'X-Slack-Request-Timestamp: $T'],
    encoding: 'hex',
  },
  stripe: { before: '$T.', headers: ['Stripe-Signature: t=$T,v1=$G'], encoding: 'hex' },
  standard: {
    before: 'msg_$T.$T.',
    headers: ['webhook-id: msg_$T', 'webhook-timestamp: $T', 'webhook-signature: v1,$G'],
    encoding: 'base64',
    isDecoded: true,
  },
};

export function sampleCommand({ scheme, generic }: Descriptor, url: string, secret_file: string): string {
  const {
    before,
    headers,
    encoding,
    algorithm = 'sha256',
    isDecoded,
  } = scheme === 'generic' ? genericSigned(generic!) : SCHEMES[scheme];
  const key =
    isDecoded === true
      ? `-mac HMAC -macopt hexkey:$(printf %s "\${S#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \\n')`
      : '-hmac "$S"';
  const encode = encoding === 'hex' ? "od -An -v -tx1 | tr -d ' \\n'" : "base64 | tr -d '\\n'";
  return [
    `S=$(${TRIM} < ${quoted(secret_file)})`,
    `T=$(date +%s); B='${BODY}'`,
    `G=$(printf %s "${before}$B" | openssl dgst -${algorithm} ${key} -binary | ${encode})`,
    `curl -sS ${quoted(url)} ${headers.map((header) => `-H "${header}"`).join(' ')} --json "$B"`,
  ].join('\n');
}

function genericSigned({ template, ...generic }: GenericScheme): Signed {
  const { signature_header, prefix = '', timestamp_header, id_header, encoding, algorithm } = generic;
  const before = template
    .slice(0, template.lastIndexOf('{body}'))
    .split(/(\{timestamp\}|\{id\})/)
    .map((part) => (part === '{timestamp}' ? TIME : part === '{id}' ? `test_${TIME}` : inDoubleQuotes(part)))
    .join('');
  const headers = [
    `${inDoubleQuotes(signature_header)}: ${inDoubleQuotes(prefix)}$G`,
    ...(timestamp_header === undefined ? [] : [`${inDoubleQuotes(timestamp_header)}: ${TIME}`]),
    ...(id_header === undefined ? [] : [`${inDoubleQuotes(id_header)}: test_${TIME}`]),
  ];
  return { before, headers, encoding, algorithm };
}

const inDoubleQuotes = (text: string): string => text.replaceAll(/[\\"$`]/g, '\\$&');

const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
