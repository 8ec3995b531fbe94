/** Opens connections that send one request and stay idle: `idle-clients.ts PORT COUNT REQUEST`. Reports when all are open. */
import { connect } from 'node:net';

const [port, count, request] = process.argv.slice(2);
const GROUP = 100;

function answered(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: Number(port), host: '127.0.0.1' }, () => void socket.write(request!));
    socket.once('data', () => resolve());
    socket.once('error', reject);
  });
}

for (let opened = 0; opened < Number(count); opened += GROUP)
  await Promise.all(Array.from({ length: GROUP }, answered));
process.send!({ idle: Number(count) });
