/**
 * Writes a problem answer straight to a socket, for refusals without a parsed request.
 *
 * Contract: a complete HTTP/1.1 answer that closes the connection, which a client that is still sending can read.
 * Bound: `LINGERING_MAX` lingering sockets. Overflow: a refused connection is closed without an answer. Never throws.
 */
import { STATUS_CODES } from '@ron/kernel/http';
import type { Socket } from 'node:net';
import type { RonError } from '@ron/kernel';
import { newCorrId } from '../guards/corr-id.ts';
import { startLinger, stopParsing } from '../connection/linger.ts';
import { problemFor } from './problem.ts';

const LINGERING_MAX = 256;
let lingering = 0;

export function answerRaw(socket: Socket, error: RonError, common: readonly string[]): void {
  if (socket.destroyed || !socket.writable || lingering >= LINGERING_MAX) {
    socket.destroy();
    return;
  }
  const { status, headers, body } = problemFor(error, newCorrId());
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}\r\nConnection: close\r\n`;
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`;
  for (let i = 0; i < common.length; i += 2) head += `${common[i]}: ${common[i + 1]}\r\n`;
  lingering += 1;
  socket.once('close', () => (lingering -= 1));
  socket.write(`${head}\r\n${body}`);
  startLinger(socket);
  // A connection that is refused on accept gets its parser only after this call: detach it again.
  queueMicrotask(() => stopParsing(socket));
}
