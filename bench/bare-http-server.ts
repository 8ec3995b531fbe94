/** A program on bare `node:http` that answers every request with one body from memory: the peer of cached answers. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const [file = ''] = process.argv.slice(2);
const body = readFileSync(file);
const headers = {
  'Content-Type': 'application/json; charset=utf-8',
  'Content-Length': body.length,
  ETag: 'W/"0123456789abcdefghijkl"',
  'Cache-Control': 'public, max-age=5',
  Age: '0',
};

const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (_req, res) => {
  res.writeHead(200, headers);
  res.end(body);
}).listen(0, '127.0.0.1', () => {
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`);
});
