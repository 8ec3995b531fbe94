/** A proxy between browser and edge that can change answers. */
import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ManInTheMiddle extends AsyncDisposable {
  readonly url: string;
}

/** `change` receives the target and the body of each answer. */
export async function manInTheMiddle(
  edge_url: string,
  change: (target: string, body: Buffer) => void,
): Promise<ManInTheMiddle> {
  const { hostname, port } = new URL(edge_url);
  const server = createServer((request, response) => {
    const headers = { ...request.headers, host: `${hostname}:${port}` };
    const sent = httpRequest({ hostname, port, path: request.url, method: request.method, headers }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        const body = Buffer.concat(chunks);
        change(request.url!, body);
        response.writeHead(answer.statusCode!, answer.headers).end(body);
      });
    });
    sent.on('error', () => response.destroy());
    request.pipe(sent);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
