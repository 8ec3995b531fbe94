/**
 * Opens many connections from several loopback addresses and holds them. A separate process, so that the descriptors
 * of the test do not run out first. Arguments: port, count, first address, addresses. Once every connect
 * has succeeded or failed, prints a line of JSON, and another on every change; ends when its input does.
 */
import { connect } from 'node:net';

const [port, count, first, addresses] = process.argv.slice(2).map(Number) as [number, number, number, number];

let opened = 0;
let failed = 0;
let closed = 0;
const refusals: Record<string, number> = {};

for (let i = 0; i < count; i += 1) {
  const localAddress = `127.0.${1 + Math.floor((first + (i % addresses)) / 250)}.${1 + ((first + (i % addresses)) % 250)}`;
  let text = '';
  let connected = false;
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  socket.on('connect', () => {
    connected = true;
    opened += 1;
  });
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (connected) closed += 1;
    else failed += 1;
    const code = /"code":"(\w+)"/.exec(text)?.[1];
    const status = /^HTTP\/1\.1 (\d{3})/.exec(text)?.[1];
    if (status !== undefined) refusals[`${status} ${code}`] = (refusals[`${status} ${code}`] ?? 0) + 1;
  });
  // In small groups: the kernel drops connections beyond its accept queue.
  if (i % 200 === 199) await new Promise((resolve) => setTimeout(resolve, 10));
}

let told = '';
setInterval(() => {
  if (opened + failed < count) return;
  const state = `${JSON.stringify({ opened, failed, closed, held: opened - closed, refusals })}\n`;
  if (state !== told) process.stdout.write(state);
  told = state;
}, 100);
process.stdin.resume().on('end', () => process.exit(0));
