/** The flags of `ron hooks`. */
import { CONNECTION_OPTIONS, type Invocation, type Options } from '../command.ts';

export const HOOKS_OPTIONS = {
  scheme: {
    type: 'string',
    value: 'SCHEME',
    doc: 'add: how the provider signs: github, slack, stripe, standard (Standard Webhooks) or generic. Required for a new provider.',
  },
  'secret-file': {
    type: 'string',
    value: 'FILE',
    doc: 'add, rotate: a file, mode 0600, with the secret; - for standard input. Default: a prompt without echo.',
  },
  generate: { type: 'boolean', doc: 'add, rotate: make a secret and print it once, to be entered at the provider.' },
  topic: {
    type: 'string',
    value: 'TOPIC',
    doc: 'add: the topic of its messages, below hooks. Default for a new provider: hooks.NAME.',
  },
  network: {
    type: 'string',
    multiple: true,
    value: 'CIDR',
    doc: 'add: accept deliveries from this network only. Repeatable. Default for a new provider: from everywhere.',
  },
  'any-network': { type: 'boolean', doc: 'add: accept deliveries from everywhere again.' },
  origin: {
    type: 'string',
    multiple: true,
    value: 'ORIGIN',
    doc: 'add: accept this Origin header. Repeatable. Default for a new provider: a request with the header is refused.',
  },
  'no-origins': { type: 'boolean', doc: 'add: refuse requests with an Origin header again.' },
  rps: { type: 'string', value: 'N', doc: 'add: verified deliveries per second; more get 429.' },
  inflight: { type: 'string', value: 'N', doc: 'add: verified deliveries in process at a time; more get 429.' },
  template: {
    type: 'string',
    value: 'TEXT',
    doc: 'add, generic: the signed bytes, such as {timestamp}.{body}. Default: {body}.',
  },
  'signature-header': { type: 'string', value: 'NAME', doc: 'add, generic: the header of the signature. Required.' },
  prefix: {
    type: 'string',
    value: 'TEXT',
    doc: 'add, generic: the text before the signature, such as sha256=; empty for none.',
  },
  encoding: { type: 'string', value: 'hex|base64', doc: 'add, generic: the encoding of the signature. Default hex.' },
  algorithm: { type: 'string', value: 'sha256|sha512', doc: 'add, generic: the hash of the HMAC. Default sha256.' },
  'timestamp-header': {
    type: 'string',
    value: 'NAME',
    doc: 'add, generic: the header of {timestamp}; empty for none.',
  },
  'id-header': { type: 'string', value: 'NAME', doc: 'add, generic: the header of {id}; empty for none.' },
  overlap: {
    type: 'string',
    value: 'DURATION',
    doc: 'rotate: how long the previous secret stays valid, from 0s to 30d. Default 24h.',
  },
  for: { type: 'string', value: 'DURATION', doc: 'brownout on, off: when it ends, from 1s to 24h. Default 10m.' },
  why: { type: 'string', value: 'TEXT', doc: 'brownout: the reason, which `ron doctor` and /readyz show.' },
  max: {
    type: 'string',
    value: 'N',
    doc: 'tail: end after N deliveries, those of --last included. dlq, replay: at most N dead letters; dlq defaults to 128.',
  },
  last: { type: 'string', value: 'N', doc: 'tail: begin with the last N deliveries. Default 10.' },
  after: { type: 'string', value: 'SEQ', doc: 'dlq: only dead letters after this sequence number.' },
  all: { type: 'boolean', doc: 'replay: all dead letters of the topic.' },
  yes: {
    type: 'boolean',
    doc: 'remove, add with a secret for a known provider: confirm. Required without a terminal.',
  },
  ...CONNECTION_OPTIONS,
} as const satisfies Options;

export type HooksInvocation = Invocation<typeof HOOKS_OPTIONS>;
