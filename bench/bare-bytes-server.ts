/**
 * The lower bound for answers from memory: a socket, the path of the request line, and the whole answer in one write.
 *
 * It parses no headers and has no limits, metrics or checks. Its extra cost compared with nginx is the copy of the bytes
 * from the process into the kernel, which `sendfile` avoids.
 */
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';

const [dir = '.'] = process.argv.slice(2);
const NOT_MODIFIED = 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nDate: now\r\n\r\n';
const answers = new Map<string, [head: string, body: Buffer]>();

function answerTo(path: string): [head: string, body: Buffer] {
  let answer = answers.get(path);
  if (answer === undefined) {
    const body = readFileSync(join(dir, path));
    answer = [`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\nETag: "x"\r\nDate: now\r\n\r\n`, body];
    answers.set(path, answer);
  }
  return answer;
}

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  socket.on('data', (packet) => {
    const text = packet.toString('latin1');
    if (text.includes('\r\nIf-None-Match:')) {
      socket.write(NOT_MODIFIED, 'latin1');
      return;
    }
    const [head, body] = answerTo(text.slice(4, text.indexOf(' ', 4)));
    socket.cork();
    socket.write(head, 'latin1');
    socket.write(body);
    socket.uncork();
  });
}).listen(0, '127.0.0.1', () => {
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`);
});
