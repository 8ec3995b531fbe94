/**
 * Repeats one request on many connections of one address as fast as the answers arrive, and reconnects when it is cut.
 * A separate process, so that it takes no time from the test. Arguments: port, address, connections, path, and how
 * many
 * requests each packet holds (default 1). Prints a line when all are connected; ends when its input does, or after a
 * minute.
 */
import { connect } from 'node:net';

const [port, localAddress, count, path, pipelined = '1'] = process.argv.slice(2) as [string, string, string, string];
const PACKET = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(Number(pipelined));
const ANSWER = 'HTTP/1.1 ';
const RECONNECT_MS = 20;
let connected = 0;

function flood(): void {
  const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress });
  socket.on('connect', () => {
    connected += 1;
    if (connected === Number(count)) process.stdout.write('ready\n');
    socket.write(PACKET);
  });
  let answers = 0;
  socket.on('data', (chunk: Buffer) => {
    answers += chunk.toString('latin1').split(ANSWER).length - 1;
    if (answers < Number(pipelined)) return;
    answers = 0;
    socket.write(PACKET);
  });
  socket.on('error', () => undefined);
  socket.on('close', () => setTimeout(flood, RECONNECT_MS));
}

for (let i = 0; i < Number(count); i += 1) flood();
process.stdin.resume().on('end', () => process.exit(0));
setTimeout(() => process.exit(0), 60_000);
