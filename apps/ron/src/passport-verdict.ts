/** Checks a capability with the passport of the node, which knows revocations. */
import { PassportClient } from '@ron/client';
import type { TokenVerdict } from '@ron/proto';
import { runningService, type Home } from './home.ts';
import type { Io } from './io.ts';
import { withClient } from './service-client.ts';

/** Undefined if passport does not run. The token is sent to passport only; `root.cap` authorizes the request. */
export async function passportVerdict(
  home: Home,
  token: string,
  io: Io,
  signal: AbortSignal,
): Promise<TokenVerdict | undefined> {
  const passport = await runningService(home, 'passport');
  if (passport === undefined) return undefined;
  const own = { dir: home.dir, url: passport.socket_url, 'capability-file': home.capability };
  const verify = (client: PassportClient): Promise<TokenVerdict> => client.verify({ token }, signal);
  return await withClient('passport', (init) => new PassportClient(init), own, io, signal, verify);
}
