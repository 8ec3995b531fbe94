/**
 * Stores each object as a file on bare `node:http`: writes a temporary file, syncs it and renames it. PUT of storage is
 * compared with it. `node file-per-object-server.ts DIR` prints its port.
 */
import fs from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { blake3 } from '@napi-rs/blake-hash';

const [dir = '.'] = process.argv.slice(2);
let files = 0;

function store(bytes: Buffer, name: string, done: (error: Error | null) => void): void {
  const aside = `${dir}/${files++}.new`;
  fs.open(aside, 'w', (openError, fd) => {
    if (openError !== null) return done(openError);
    fs.write(fd, bytes, 0, bytes.length, 0, (writeError) => {
      if (writeError !== null) return done(writeError);
      fs.fsync(fd, (syncError) => {
        fs.close(fd, () => (syncError === null ? fs.rename(aside, `${dir}/${name}`, done) : done(syncError)));
      });
    });
  });
}

function answer(req: IncomingMessage, res: ServerResponse): void {
  const pieces: Buffer[] = [];
  req.on('data', (piece: Buffer) => pieces.push(piece));
  req.on('end', () => {
    const bytes = Buffer.concat(pieces);
    const name = req.url!.slice('/o/b3:'.length);
    const finish = (status: number): void => void res.writeHead(status, { 'Content-Length': 0 }).end();
    if (blake3(bytes).toString('hex') !== name) return finish(409);
    store(bytes, name, (error) => finish(error === null ? 201 : 503));
  });
}

const server = createServer({ noDelay: true, keepAliveTimeout: 60_000 }, answer);
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
