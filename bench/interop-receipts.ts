/** Waits until receipts are signed, for the load generator of the interop benchmark: one request after each sampled 202. */
import { Agent, get } from 'node:http';

/** Each waits up to 2 s in interop. */
const TRIES = 5;

export class ReceiptWaits {
  readonly #port: number;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #waits: Promise<void>[] = [];
  readonly #took_ms: number[] = [];

  constructor(port: number) {
    this.#port = port;
  }

  add(id: string, authorization: string): void {
    this.#waits.push(this.#untilSigned(id, authorization));
  }

  /** From the calls of `add` to the signatures. Infinity: it was not signed in time. */
  async all(): Promise<readonly number[]> {
    await Promise.all(this.#waits);
    this.#agent.destroy();
    return this.#took_ms;
  }

  async #untilSigned(id: string, authorization: string): Promise<void> {
    const begun_ms = performance.now();
    for (let tries = 0; tries < TRIES; tries++) {
      if ((await this.#statusOf(id, authorization)) !== 200) continue;
      this.#took_ms.push(performance.now() - begun_ms);
      return;
    }
    this.#took_ms.push(Infinity);
  }

  #statusOf(id: string, authorization: string): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const init = {
      port: this.#port,
      host: '127.0.0.1',
      path: `/receipts/${id}?wait=1`,
      agent: this.#agent,
      headers: { Authorization: authorization },
    };
    get(init, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode ?? 0));
    }).on('error', reject);
    return promise;
  }
}
