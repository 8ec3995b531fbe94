/** Ports on which no server listens. */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

/** A port that was free a moment ago. A server under test listens on port 0 instead. */
export async function unusedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export const unusedUrl = async (): Promise<string> => `http://127.0.0.1:${await unusedPort()}`;
