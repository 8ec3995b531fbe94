/**
 * Signs a sample delivery, for `POST /admin/providers/{name}/test`.
 *
 * Contract: `verifyWebhook` accepts the headers with the body at `wall_ms`.
 */
import { createHmac, type KeyObject } from 'node:crypto';
import { assert } from '@ron/kernel';
import type { GenericScheme, SchemeName } from '@ron/proto';
import { compileTemplate, fillTemplate } from './generic-template.ts';
import { GITHUB } from './schemes/github.ts';
import { SLACK, slackPrefix } from './schemes/slack.ts';
import { STANDARD, standardPrefix } from './schemes/standard.ts';
import { STRIPE, stripePrefix } from './schemes/stripe.ts';

export interface SampleInit {
  readonly scheme: SchemeName;
  readonly generic?: GenericScheme | undefined;
  /** The HMAC secret. */
  readonly key: KeyObject;
  readonly body: Uint8Array;
  readonly wall_ms: number;
  /** The id of the delivery, for schemes that have one in a header: letters, digits and `_`. */
  readonly id: string;
}

type Headers = Record<string, string>;

const SIGNERS: Readonly<Record<SchemeName, (init: SampleInit, time: string) => Headers>> = {
  github: (init) => ({
    [GITHUB.signature]: `${GITHUB.prefix}${digest(init, '').toString('hex')}`,
    [GITHUB.delivery]: init.id,
    [GITHUB.event]: 'ping',
  }),
  slack: (init, time) => ({
    [SLACK.signature]: `${SLACK.prefix}${digest(init, slackPrefix(time)).toString('hex')}`,
    [SLACK.timestamp]: time,
  }),
  stripe: (init, time) => ({
    [STRIPE.signature]: `t=${time},v1=${digest(init, stripePrefix(time)).toString('hex')}`,
  }),
  standard: (init, time) => ({
    [STANDARD.id]: init.id,
    [STANDARD.timestamp]: time,
    [STANDARD.signature]: `v1,${digest(init, standardPrefix(init.id, time)).toString('base64')}`,
  }),
  generic: signGeneric,
};

/** The headers of the signed request; names in lower case. */
export function signSample(init: SampleInit): Headers {
  return SIGNERS[init.scheme](init, String(Math.floor(init.wall_ms / 1000)));
}

function signGeneric(init: SampleInit, time: string): Headers {
  const { generic, id } = init;
  assert(generic !== undefined, 'a provider of the scheme generic has a template');
  const template = compileTemplate(generic);
  const { signature_header, timestamp_header, id_header } = template;
  const signed = digest(init, fillTemplate(template, { timestamp: time, id }), generic.algorithm);
  return {
    [signature_header]: `${generic.prefix ?? ''}${signed.toString(generic.encoding)}`,
    ...(timestamp_header !== undefined && { [timestamp_header]: time }),
    ...(id_header !== undefined && { [id_header]: id }),
  };
}

function digest({ key, body }: SampleInit, prefix: string, algorithm: 'sha256' | 'sha512' = 'sha256'): Buffer {
  return createHmac(algorithm, key).update(prefix).update(body).digest();
}
