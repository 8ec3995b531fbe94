/** Shared by the tests of modes: an origin at an IP address, for an edge in another process, which no name lookup reaches. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Authority, hostile, type Hostile, type Script } from '@ron/egress/testing';

export interface NumberedOrigin extends AsyncDisposable {
  readonly origin: Hostile;
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** With them, edge may fetch from it in live mode. */
  readonly flags: readonly string[];
  readonly pathOf: (path: string) => string;
}

/** `dir` gets the file of the authority. */
export async function numberedOrigin(dir: string, script: Script): Promise<NumberedOrigin> {
  using authority = new Authority();
  const ca_file = join(dir, 'ca.pem');
  await writeFile(ca_file, authority.pem);
  const origin = await hostile(script, { tls: authority.issue({ names: 'IP:127.0.0.1' }) });
  const host = `127.0.0.1:${origin.port}`;
  return {
    origin,
    host,
    flags: [`--fill.allow=https://${host}`, '--fill.networks=127.0.0.0/8', `--fill.ca_file=${ca_file}`],
    pathOf: (path) => `/edge/assets/live/${host}${path}`,
    [Symbol.asyncDispose]: () => origin[Symbol.asyncDispose](),
  };
}
