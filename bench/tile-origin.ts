/**
 * An HTTPS origin as a child process: `tile-origin.ts KEY_FILE CERTIFICATE_FILE`. Answers every path with 10 KiB that depend on
 * it and a strong ETag. Prints its port; a line on standard input makes it print the number of requests so far.
 */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';

const [key, certificate] = process.argv.slice(2);
const body = Buffer.alloc(10 * 1024, 'tile ');
let requests = 0;

const server = createServer({ key: readFileSync(key!), cert: readFileSync(certificate!) }, (request, response) => {
  requests += 1;
  const tag = Buffer.from(request.url!);
  response.writeHead(200, {
    'Content-Type': 'image/png',
    'Content-Length': tag.length + body.length,
    ETag: `"${tag.toString('base64url')}"`,
    'Cache-Control': 'public, max-age=86400',
  });
  response.write(tag);
  response.end(body);
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
process.stdin.on('data', () => process.stdout.write(`${requests}\n`));
