/** The flags of `ron queue`. */
import { CONNECTION_OPTIONS, type Invocation, type Options } from '../command.ts';

export const QUEUE_OPTIONS = {
  text: { type: 'string', value: 'TEXT', doc: 'send: the message itself, instead of a file.' },
  lines: {
    type: 'boolean',
    doc: 'send: each line is a message. receive, peek: print only the payloads, one per line.',
  },
  raw: { type: 'boolean', doc: 'receive, peek: print only the bytes of the payloads. A terminal gets them escaped.' },
  key: { type: 'string', value: 'KEY', doc: 'send: messages of one key are delivered in order, one at a time.' },
  'idempotency-key': {
    type: 'string',
    value: 'KEY',
    doc: 'send: a repeated send with this key stores nothing. With several messages, their numbers are appended: KEY/1, KEY/2.',
  },
  delay: {
    type: 'string',
    value: 'DURATION',
    doc: 'send, nack: how long the message stays invisible, at most 24h. Default for nack: a random backoff.',
  },
  header: {
    type: 'string',
    multiple: true,
    value: 'NAME:VALUE',
    doc: 'send: a header of the message. Repeatable.',
  },
  max: {
    type: 'string',
    value: 'N',
    doc: 'receive, peek: at most N messages, default 1. dlq, replay, delete: at most N dead letters; dlq defaults to 128.',
  },
  wait: { type: 'string', value: 'DURATION', doc: 'receive: how long to wait for a message. Default 0s.' },
  visibility: {
    type: 'string',
    value: 'DURATION',
    doc: 'receive, extend: how long no other receiver gets the message, from 1s to 12h. Default 30s.',
  },
  ack: { type: 'boolean', doc: 'receive: acknowledge each message once it is printed, or stored in --out.' },
  out: {
    type: 'string',
    value: 'DIR',
    doc: 'receive: write each payload to a file SEQ-ID in this directory, and print its path.',
  },
  follow: { type: 'boolean', doc: 'receive: continue until Ctrl-C, through restarts of mailbox.' },
  error: { type: 'string', value: 'TEXT', doc: 'nack: the reason for the failure; a dead letter keeps the last one.' },
  dead: { type: 'boolean', doc: 'nack: turn the messages into dead letters now.' },
  after: { type: 'string', value: 'SEQ', doc: 'dlq: only dead letters after this sequence number.' },
  all: { type: 'boolean', doc: 'replay, delete: all dead letters of the topic.' },
  set: {
    type: 'string',
    multiple: true,
    value: 'NAME=VALUE',
    doc: 'policy: a limit of the topic, such as max_deliveries=5, max_age=1d or max_bytes=default. Repeatable.',
  },
  reason: { type: 'string', value: 'TEXT', doc: 'accept: why the loss is accepted; recorded in the log of mailbox.' },
  yes: { type: 'boolean', doc: 'delete, accept: confirm. Required without a terminal.' },
  ...CONNECTION_OPTIONS,
} as const satisfies Options;

export type QueueInvocation = Invocation<typeof QUEUE_OPTIONS>;
