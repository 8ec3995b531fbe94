/**
 * A token for one request: of no use to the server of another audience, after a few seconds, or for another body.
 *
 *     authorize: ({ body }) => narrowed(token, { audience: 'kms', body })
 *
 * Contract: `narrowed` adds a time limit of `NARROWED_MS` (`sent`) and the hash of the body. A request without a body gets
 * a token that allows none; a streamed body is not restricted. The limit is checked when the headers arrive, so it does not
 * limit the time of a transfer. A token for another audience is refused before it is sent. Works offline, without a key.
 * Bound: the limits of a capability; a token without room for two more caveats is refused.
 */
import { RonError, sched } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { Blake3Hasher } from '@ron/simd/blake3-hasher';
import { attenuate, inspectToken, type CaveatLike } from './capability.ts';

/** Covers the wait for a connection and the difference of two clocks. */
export const NARROWED_MS = 30_000;

export interface NarrowInit {
  /** The service that the token is sent to. */
  readonly audience: Service;
  /** Empty: no body; undefined: a streamed one. */
  readonly body: Uint8Array | undefined;
}

export function narrowed(token: string, { audience, body }: NarrowInit): string {
  const { audience: its, expires_ms } = inspectToken(token);
  if (its !== audience) {
    throw new RonError('validation', `the capability is for ${its}: it is not sent to ${audience}`, {
      op: 'capability',
    });
  }
  const at_ms = sched.wall_ms() + NARROWED_MS;
  const limit: CaveatLike[] = at_ms < expires_ms ? [{ key: 'sent', at_ms }] : [];
  return attenuate(token, [...limit, ...bodyCaveat(body)]);
}

function bodyCaveat(body: Uint8Array | undefined): CaveatLike[] {
  if (body === undefined) return [];
  if (body.length === 0) return [{ key: 'bytes', body_bytes_max: 0 }];
  const hasher = new Blake3Hasher();
  hasher.update(body);
  return [{ key: 'body', algorithm: 'b3', hex: hasher.digest().toHex() }];
}
