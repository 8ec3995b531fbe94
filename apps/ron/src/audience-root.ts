/** `ron cap root`: shows, rotates and retires the root of the capability keys. */
import { KmsClient } from '@ron/client';
import type { AudienceRootState } from '@ron/proto';
import { usage } from './args.ts';
import type { Io } from './io.ts';
import type { ConnectionValues } from './resolve-service.ts';
import { withClient } from './service-client.ts';

export interface RootInvocation {
  readonly values: ConnectionValues;
  readonly io: Io;
  readonly signal: AbortSignal;
}

/** `rest` is `[]`, `['rotate']` or `['retire', VERSION]`. */
export async function audienceRoot({ values, io, signal }: RootInvocation, rest: readonly string[]): Promise<void> {
  const work = workOf(rest);
  const call = { signal };
  const { state, text } = await withClient(
    'kms',
    (init) => new KmsClient(init),
    values,
    io,
    signal,
    (client) => work(client, call),
  );
  return io.result(text, state);
}

type Outcome = { readonly state: AudienceRootState; readonly text: string };
type Work = (client: KmsClient, call: { signal: AbortSignal }) => Promise<Outcome>;

function workOf([verb, version, ...more]: readonly string[]): Work {
  if (verb === undefined) return show;
  if (verb === 'rotate' && version === undefined) return rotate;
  const min_version = /^[1-9][0-9]{0,5}$/.test(version ?? '') ? Number(version) : undefined;
  if (verb === 'retire' && min_version !== undefined && more.length === 0) {
    return async (client, call) => {
      const state = await client.retireAudienceRoot(min_version, call);
      return { state, text: `Capabilities under versions before ${state.min_version} are refused within two seconds` };
    };
  }
  throw usage({ name: 'cap' }, 'expected `cap root`, `cap root rotate` or `cap root retire VERSION`');
}

const show: Work = async (client, call) => {
  const state = await client.audienceRoot(call);
  return { state, text: `version ${state.version}, valid from version ${state.min_version}` };
};

const rotate: Work = async (client, call) => {
  const { version } = await client.audienceRoot(call);
  const state = await client.rotateAudienceRoot(version, call);
  return { state, text: `version ${state.version} is current; older versions stay valid until they are retired` };
};
