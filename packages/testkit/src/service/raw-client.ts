/** A TCP client that sends bytes as written and keeps all bytes that it receives. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export class RawClient {
  readonly socket: Socket;
  /** In latin1: a character is a byte. A test may clear it. */
  received = '';
  closed = false;
  /** Set when the connection was reset or could not be opened. */
  error: Error | undefined;

  /** `localAddress`: another loopback address makes it another client for limits by address. */
  constructor(port: number, localAddress?: string) {
    this.socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, ...(localAddress && { localAddress }) });
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => (this.received += text));
    this.socket.on('error', (error) => (this.error = error));
    this.socket.on('close', () => (this.closed = true));
    this.socket.on('end', () => this.socket.end());
  }

  static async open(port: number, localAddress?: string): Promise<RawClient> {
    const client = new RawClient(port, localAddress);
    await once(client.socket, 'connect');
    return client;
  }

  write(text: string): void {
    this.socket.write(text, 'latin1');
  }

  /** Sends a request line and headers; `Host` is added. */
  head(method: string, path: string, headers: Readonly<Record<string, string | number>> = {}): void {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    this.write(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join('')}\r\n`);
  }

  /** Waits for the end of the connection and returns everything that was received. */
  async rest(): Promise<string> {
    if (!this.closed) await once(this.socket, 'close');
    return this.received;
  }

  /** Waits until the received text matches. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.received);
      if (match !== null) return match;
      if (this.closed) throw new Error(`closed before ${pattern}: ${JSON.stringify(this.received.slice(0, 500))}`);
      const waiting = new AbortController();
      const { signal } = waiting;
      await Promise.race([once(this.socket, 'data', { signal }), once(this.socket, 'close', { signal })]);
      waiting.abort();
    }
  }

  destroy(): void {
    this.socket.destroy();
  }
}
