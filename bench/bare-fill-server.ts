/**
 * The floor of a fill: fetches the path from an HTTPS origin over kept-alive connections, hashes the body, appends it to one
 * file, and answers. `bare-fill-server.ts DIRECTORY ORIGIN CA_FILE`. Prints its port.
 */
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Agent, get } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';

const [dir, origin, ca_file] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, ca: readFileSync(ca_file!) });
const log = await open(join(dir!, 'log'), 'a');

const server = createServer((request, response) => {
  get(`${origin}${request.url}`, { agent }, (answer) => {
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.on('end', () => {
      const body = Buffer.concat(chunks);
      const tag = `"b3:${blake3(body).toString('hex')}"`;
      void log.write(body).then(() => {
        response.writeHead(200, { 'Content-Type': 'image/png', 'Content-Length': body.length, ETag: tag });
        response.end(body);
      });
    });
  });
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
