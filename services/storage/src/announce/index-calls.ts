/** Calls of the index of this node, over its Unix socket, with the capability of the pair. */
import { narrowed } from '@ron/auth/narrowed';
import { JsonCalls, type AuthorizedRequest } from '@ron/client/calls';
import { reachPrivately } from '@ron/client/node';
import { POLICIES } from '@ron/kernel';
import { readSecretFile } from '@ron/log';
import type { AnnounceDto, AnnouncedDto } from '@ron/proto';

export interface IndexCallsInit {
  /** `unix:PATH`. */
  readonly url: string;
  /** With the scope `index:announce`. Read before each call, because `ron up` renews it. */
  readonly capability_file: string;
  readonly deadline_ms: number;
}

export type Announce = (announcement: AnnounceDto, signal: AbortSignal) => Promise<AnnouncedDto>;

export function announceTo({ url, capability_file, deadline_ms }: IndexCallsInit): Announce {
  const index = reachPrivately(url);
  return async (announcement, signal) => {
    const token = await readSecretFile(capability_file);
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'index', body });
    const calls = new JsonCalls('', { ...index, authorize, deadline_ms, policy: POLICIES.once });
    return await calls.post('announce', 'announce', announcement, signal);
  };
}
