/**
 * The load generator of the interop benchmark, as a child process: raw keep-alive sockets, requests that are built in advance.
 *
 * Closed loop: each connection sends its next request after an answer. Open loop (`rate_per_s`): requests have a fixed schedule,
 * and times count from it, so a slow server does not slow the load. A request that is not answered within `deadline_ms` is
 * late: its connection is destroyed, as a client that gives up does.
 * Bound: `connections` sockets, `requests` requests; in the open loop those without a free connection wait in the generator.
 * Receives orders over IPC and answers `Report`, which includes its own CPU time.
 */
import { connect, type Socket } from 'node:net';
import { timesOf, type Order, type Report } from './interop-order.ts';
import { ReceiptWaits } from './interop-receipts.ts';
import { buildRequests } from './interop-requests.ts';

interface Connection {
  readonly socket: Socket;
  /** The request in flight, by index. Undefined: none. */
  at: number | undefined;
  /** Bytes of the answer that are still expected after its head. */
  left: number;
  /** The beginning of a head that came in pieces. */
  head: Buffer | undefined;
}

const READ_BYTES = 64 * 1024;
const DEADLINE_MS = 10_000;
const TICK_MS = 1;
const ID_CHARS = 26;
const RECEIPT = '"receipt":"';

class Run {
  readonly #order: Order;
  readonly #requests: readonly Buffer[];
  readonly #deadline_ms: number;
  readonly #begun_ms: number[];
  readonly #took_ms: number[] = [];
  readonly #outcomes: Record<string, number> = {};
  readonly #good_by_second: number[] = [];
  readonly #ids: string[] = [];
  readonly #receipts: ReceiptWaits;
  readonly #open = new Set<Connection>();
  readonly #byIndex = new Map<number, Connection>();
  /** The status of the answer in flight. */
  readonly #status = new WeakMap<Connection, string>();
  #free: Connection[] = [];
  /** All sockets share one buffer: each read is processed before the next. */
  readonly #buffer = Buffer.allocUnsafe(READ_BYTES);
  readonly #over = Promise.withResolvers<void>();
  #connected_total = 0;
  #connecting = 0;
  #sent = 0;
  #checked = 0;
  #done = 0;
  #spooled = 0;
  #accepted = 0;
  #start_ms = 0;

  constructor(order: Order) {
    this.#order = order;
    this.#deadline_ms = order.deadline_ms ?? DEADLINE_MS;
    this.#receipts = new ReceiptWaits(order.port);
    this.#requests = buildRequests(order.what, order.requests);
    this.#begun_ms = Array.from({ length: order.requests }, () => 0);
  }

  async run(): Promise<Report> {
    const { connections, rate_per_s } = this.#order;
    const first = rate_per_s === undefined ? connections : Math.min(connections, 16);
    await Promise.all(Array.from({ length: first }, () => this.#connect()));
    const cpu = process.cpuUsage();
    this.#start_ms = performance.now();
    const timer = setInterval(() => this.#tick(), TICK_MS);
    if (rate_per_s === undefined) for (const connection of this.#free.splice(0)) this.#next(connection);
    await this.#over.promise.finally(() => clearInterval(timer));
    const seconds = (performance.now() - this.#start_ms) / 1000;
    const { user, system } = process.cpuUsage(cpu);
    const signed_ms = await this.#receipts.all();
    for (const connection of this.#open) this.#drop(connection);
    return {
      seconds,
      cpu_us: user + system,
      outcomes: this.#outcomes,
      good: timesOf(this.#took_ms),
      good_by_second: Array.from(this.#good_by_second, (count) => count ?? 0),
      spooled: this.#spooled,
      receipts: this.#ids,
      signed: timesOf(signed_ms),
    };
  }

  #tick(): void {
    const now_ms = performance.now();
    const { rate_per_s, requests, connections } = this.#order;
    if (rate_per_s !== undefined) {
      const due = Math.min(requests, Math.floor(((now_ms - this.#start_ms) / 1000) * rate_per_s));
      while (this.#sent < due) {
        const connection = this.#free.shift();
        if (connection === undefined) break;
        this.#send(connection, this.#scheduled_ms(this.#sent));
      }
      this.#giveUp(due, now_ms - this.#deadline_ms);
      const wanted = Math.min(due - this.#sent - this.#connecting, connections - this.#open.size);
      for (let more = 0; more < wanted; more++) void this.#connect();
    }
    this.#expire(now_ms);
  }

  /** Requests that found no connection before their deadline. */
  #giveUp(due: number, begun_ms: number): void {
    for (; this.#sent < due && this.#scheduled_ms(this.#sent) < begun_ms; this.#sent++) this.#count('late');
  }

  #scheduled_ms(at: number): number {
    return this.#start_ms + (at / this.#order.rate_per_s!) * 1000;
  }

  /** Requests are sent in the order of their deadlines. */
  #expire(now_ms: number): void {
    for (; this.#checked < this.#sent; this.#checked++) {
      if (this.#begun_ms[this.#checked]! + this.#deadline_ms > now_ms) return;
      const connection = this.#byIndex.get(this.#checked);
      if (connection === undefined) continue;
      this.#finish(connection, 'late');
      this.#drop(connection);
      if (this.#order.rate_per_s === undefined) this.#over.reject(new Error('a request was not answered in time'));
    }
  }

  async #connect(): Promise<void> {
    const { port, addresses = ['127.0.0.1'] } = this.#order;
    const localAddress = addresses[(this.#connected_total += 1) % addresses.length]!;
    const connected = Promise.withResolvers<void>();
    const callback = (bytes: number): boolean => {
      this.#read(connection, this.#buffer.subarray(0, bytes));
      return true;
    };
    const socket = connect({
      port,
      host: '127.0.0.1',
      localAddress,
      noDelay: true,
      onread: { buffer: this.#buffer, callback },
    });
    const connection: Connection = { socket, at: undefined, left: 0, head: undefined };
    this.#open.add(connection);
    const gone = (): void => {
      if (connection.at !== undefined) this.#finish(connection, 'cut');
      this.#drop(connection);
      if (this.#order.rate_per_s === undefined) this.#over.reject(new Error('the server closed a connection'));
      connected.resolve();
    };
    socket.on('connect', () => {
      this.#free.push(connection);
      connected.resolve();
    });
    for (const event of ['error', 'end', 'close']) socket.on(event, gone);
    this.#connecting += 1;
    await connected.promise;
    this.#connecting -= 1;
  }

  #drop(connection: Connection): void {
    connection.socket
      .removeAllListeners()
      .on('error', () => undefined)
      .destroy();
    if (!this.#open.delete(connection)) return;
    this.#free = this.#free.filter((one) => one !== connection);
  }

  #next(connection: Connection): void {
    if (this.#order.rate_per_s !== undefined) this.#free.push(connection);
    else if (this.#sent < this.#order.requests) this.#send(connection, performance.now());
  }

  #send(connection: Connection, begun_ms: number): void {
    const at = this.#sent;
    this.#sent += 1;
    this.#begun_ms[at] = begun_ms;
    connection.at = at;
    this.#byIndex.set(at, connection);
    connection.socket.write(this.#requests[at]!);
  }

  #read(connection: Connection, piece: Buffer): void {
    if (connection.at === undefined) return;
    if (connection.left > 0) {
      connection.left -= piece.length;
      if (connection.left <= 0) this.#answered(connection, undefined);
      return;
    }
    const bytes = connection.head === undefined ? piece : Buffer.concat([connection.head, piece]);
    const text = bytes.toString('latin1', 0, Math.min(bytes.length, 4096));
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) {
      connection.head = Buffer.from(bytes);
      return;
    }
    connection.head = undefined;
    const length = /\r\ncontent-length: (\d+)/i.exec(text);
    connection.left = Number(length?.[1] ?? 0) - (bytes.length - end - 4);
    this.#note(connection, text);
    if (connection.left <= 0) this.#answered(connection, text);
  }

  #note(connection: Connection, text: string): void {
    this.#status.set(connection, text.slice(9, 12));
    if (!text.startsWith('202', 9)) return;
    this.#accepted += 1;
    if (text.includes('"place":"spool"')) this.#spooled += 1;
    const { collects = false, receipts } = this.#order;
    const isSample = receipts !== undefined && this.#accepted % receipts.every === 0;
    if (!collects && !isSample) return;
    const at = text.indexOf(RECEIPT) + RECEIPT.length;
    const id = text.slice(at, at + ID_CHARS);
    if (collects) this.#ids.push(id);
    if (isSample) this.#receipts.add(id, receipts.authorization);
  }

  #answered(connection: Connection, text: string | undefined): void {
    this.#finish(connection, this.#status.get(connection) ?? 'cut');
    if (text !== undefined && /\r\nconnection: close/i.test(text)) this.#drop(connection);
    else this.#next(connection);
  }

  #finish(connection: Connection, outcome: string): void {
    const at = connection.at!;
    connection.at = undefined;
    this.#byIndex.delete(at);
    if (outcome.startsWith('2')) {
      const now_ms = performance.now();
      this.#took_ms.push(now_ms - this.#begun_ms[at]!);
      const second = Math.floor((now_ms - this.#start_ms) / 1000);
      this.#good_by_second[second] = (this.#good_by_second[second] ?? 0) + 1;
    }
    this.#count(outcome);
  }

  #count(outcome: string): void {
    this.#outcomes[outcome] = (this.#outcomes[outcome] ?? 0) + 1;
    this.#done += 1;
    if (this.#done === this.#order.requests) this.#over.resolve();
  }
}

process.on('message', (order: Order) => {
  new Run(order).run().then(
    (report) => process.send!(report),
    (error: unknown) => process.send!({ error: String(error) }),
  );
});
