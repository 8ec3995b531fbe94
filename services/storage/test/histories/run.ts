import type { Reply } from '@ron/testkit/service';
/** Runs a history against a storage process, and checks every answer against the model. */
import { DirectoryServer, holdsWithin, isServing, pause, requestOnce, TUS, UPLOAD_BYTES } from '../directory-server.ts';
import { CONTENTS, Model, UPLOADED, Violation, type Content, type UploadState } from './model.ts';
import { describeOperation, flagsOf, type History, type Operation } from './plan.ts';

/** How long a required answer may be refused: a directory that went or came back is noticed within seconds. */
const PATIENCE_MS = 12_000;
const NOTICE_MS = 4000;
const REPAIRS_MAX = 8;

export interface Failure {
  readonly message: string;
  /** Operations up to the one that failed. */
  readonly operations: readonly Operation[];
}

/** Undefined when every answer was allowed. */
export async function failureOf(history: History): Promise<Failure | undefined> {
  const { profile, operations } = history;
  await using server = await DirectoryServer.create({ dirs: profile.dirs, flags: flagsOf(profile) });
  const run = new Run(server, history);
  let done = 0;
  try {
    await run.start();
    for (const operation of operations) {
      done += 1;
      await run.execute(operation);
    }
    done += 1;
    await run.finish();
    return undefined;
  } catch (error) {
    const at = done > operations.length ? 'at the end' : `at operation ${done}`;
    const text = error instanceof Violation ? error.message : String(error instanceof Error ? error.stack : error);
    return { message: `${at}: ${text}${run.lastErrors}`, operations: operations.slice(0, done) };
  }
}

class Run {
  readonly #server: DirectoryServer;
  readonly #history: History;
  readonly #model: Model;

  constructor(server: DirectoryServer, history: History) {
    this.#server = server;
    this.#history = history;
    this.#model = new Model(history.profile);
  }

  get lastErrors(): string {
    const lines = this.#server.process?.log.filter(({ level }) => level === 'error' || level === 'fatal') ?? [];
    return lines
      .slice(-3)
      .map((line) => `\n    log: ${JSON.stringify(line).slice(0, 400)}`)
      .join('');
  }

  get #away(): number {
    return this.#server.away.size;
  }

  async start(): Promise<void> {
    try {
      await this.#server.start();
    } catch (error) {
      throw new Violation(`storage does not start with ${this.#away} directories away: ${String(error)}`);
    }
  }

  async execute(operation: Operation): Promise<void> {
    switch (operation.op) {
      case 'put':
        return await this.#put(CONTENTS[operation.content]!);
      case 'get':
        return await this.#read(CONTENTS[operation.content]!);
      case 'pin':
      case 'unpin':
        return await this.#pin(CONTENTS[operation.content]!, operation.op);
      case 'upload':
        return await this.#create(operation.upload);
      case 'patch':
        return await this.#patch(operation.upload, operation.bytes);
      case 'head':
        return void (await this.#head(operation.upload));
      case 'abandon':
        return await this.#abandon(operation.upload);
      case 'away':
        return await this.#takeAway(operation.dir, operation.seen);
      case 'back':
        return await this.#bringBack(operation.dir, operation.seen);
      case 'swap':
        return await this.#swap(...operation.dirs);
      case 'crash':
        return await this.#crash(operation);
      case 'restart':
        await this.#server.stop();
        return await this.start();
      case 'expire':
        await pause((this.#history.profile.lease_ms ?? 0) + 1000);
        return await this.#compact();
      case 'compact':
        return await this.#compact();
      case 'repair':
      case 'scrub':
        return void (await this.#server.runTask(operation.op));
    }
  }

  /** Brings everything back, repairs, and reads every object. */
  async finish(): Promise<void> {
    for (const dir of this.#server.away) await this.#server.bringBack(dir);
    await this.#untilAllServe();
    await this.#repair();
    for (const content of this.#model.known) await this.#read(content);
    for (let upload = 0; upload < UPLOADED.length; upload++) await this.#finishUpload(upload);
    const { lease_ms } = this.#history.profile;
    if (lease_ms === undefined) return;
    // Pins hold, and removed objects stay removed.
    await pause(lease_ms + 1000);
    await this.#compact();
    for (const content of this.#model.known) await this.#read(content);
  }

  async #put(content: Content): Promise<void> {
    const sent_ms = Date.now();
    const reply = await this.#insist(
      () => this.#server.request('PUT', `/o/${content.address}`, { body: content.bytes }),
      ({ status }) => status === 200 || status === 201,
      () => this.#model.mustStore(this.#away),
    );
    if (reply?.status === 200 || reply?.status === 201) return this.#model.stored(content, sent_ms);
    this.#model.maybeStored(content);
    if (this.#model.mustStore(this.#away)) throw new Violation(`PUT of ${content.name}: ${shown(reply)}`);
  }

  async #read(content: Content): Promise<void> {
    const isRequired = (): boolean =>
      this.#model.stateOf(content).existence === 'present' && this.#model.mustServe(this.#away);
    const reply = await this.#insist(
      () => requestOnce(this.#server.url, 'GET', `/o/${content.address}`),
      ({ status }) => status === 200 || status === 404,
      isRequired,
    );
    if (reply !== undefined) return this.#model.checkRead(content, reply, this.#away);
    // The connection was cut after the first bytes: allowed only while chunks are away.
    if (isRequired()) throw new Violation(`GET of ${content.name} is cut, ${this.#away} away`);
  }

  async #pin(content: Content, op: 'pin' | 'unpin'): Promise<void> {
    const state = this.#model.stateOf(content);
    const was = state.isPinned;
    const method = op === 'pin' ? 'PUT' : 'DELETE';
    const reply = await this.#attempt(() => this.#server.request(method, `/o/${content.address}/pin`));
    if (reply?.status === 204) {
      if (op === 'pin') this.#model.pinned(content);
      else state.isPinned = 'no';
      return;
    }
    if (reply?.status === 404 && state.existence === 'present') {
      throw new Violation(`${op} of ${content.name}, which was acknowledged: ${shown(reply)}, ${this.#away} away`);
    }
    if (reply?.status === 404) return;
    if (was !== (op === 'pin' ? 'yes' : 'no')) state.isPinned = 'maybe';
  }

  async #create(index: number): Promise<void> {
    if (this.#model.uploads[index] !== undefined) return;
    const content = UPLOADED[index]!;
    const headers = { ...TUS, 'upload-length': String(content.bytes.length) };
    const reply = await this.#insist(
      () => this.#server.request('POST', '/uploads', { headers }),
      ({ status }) => status === 201,
      () => this.#model.mustStore(this.#away),
    );
    if (reply?.status === 201) {
      this.#model.uploads[index] = { content, path: reply.headers.location!, offset: 0 };
    } else if (this.#model.mustStore(this.#away)) throw new Violation(`creation of an upload: ${shown(reply)}`);
  }

  /** The offset that the server tells; undefined when it may refuse to, and does. */
  async #head(index: number): Promise<number | undefined> {
    const upload = this.#model.uploads[index];
    if (upload === undefined) return undefined;
    const reply = await this.#insist(
      () => this.#server.request('HEAD', upload.path, { headers: TUS }),
      ({ status }) => status === 200 || status === 404,
      () => this.#model.mustServe(this.#away),
    );
    const told = `upload ${index}, acknowledged up to ${upload.offset}, ${this.#away} away`;
    if (reply?.status === 200) {
      const offset = Number(reply.headers['upload-offset']);
      if (offset < upload.offset) throw new Violation(`${told}: the offset went back to ${offset}`);
      upload.offset = offset;
      return offset;
    }
    if (this.#model.mustServe(this.#away) || (reply !== undefined && reply.status !== 503)) {
      throw new Violation(`${told}: ${shown(reply)}`);
    }
    return undefined;
  }

  async #patch(index: number, bytes: number): Promise<void> {
    const offset = await this.#head(index);
    const upload = this.#model.uploads[index];
    if (upload === undefined || offset === undefined) return;
    if (offset === upload.content.bytes.length) return this.#completed(index, upload, 0);
    const sent_ms = Date.now();
    const end = Math.min(offset + bytes, upload.content.bytes.length);
    // The last bytes make the object, acknowledged or not.
    if (end === upload.content.bytes.length) this.#model.maybeStored(upload.content);
    const body = upload.content.bytes.subarray(offset, end);
    const headers = { ...UPLOAD_BYTES, 'upload-offset': String(offset) };
    const reply = await this.#attempt(() => this.#server.request('PATCH', upload.path, { body, headers }));
    if (reply?.status !== 204) return;
    upload.offset = Number(reply.headers['upload-offset']);
    if (upload.offset === upload.content.bytes.length) this.#completed(index, upload, sent_ms);
  }

  #completed(index: number, upload: UploadState, sent_ms: number): void {
    this.#model.stored(upload.content, sent_ms);
    this.#model.uploads[index] = undefined;
  }

  async #finishUpload(index: number): Promise<void> {
    const upload = this.#model.uploads[index];
    if (upload === undefined) return;
    await holdsWithin(PATIENCE_MS, async () => {
      await this.#patch(index, upload.content.bytes.length);
      return this.#model.uploads[index] === undefined;
    });
    if (this.#model.uploads[index] !== undefined) throw new Violation(`upload ${index} cannot be completed`);
    await this.#read(upload.content);
  }

  async #abandon(index: number): Promise<void> {
    const upload = this.#model.uploads[index];
    if (upload === undefined) return;
    await this.#attempt(() => this.#server.request('DELETE', upload.path, { headers: TUS }));
    this.#model.uploads[index] = undefined;
  }

  async #takeAway(dir: number, isSeen: boolean): Promise<void> {
    const { dirs, away } = this.#server;
    if (away.has(dir) || away.size + 1 >= dirs.length) return;
    await this.#server.takeAway(dir);
    if (isSeen) await this.#untilSeen(dir, false);
  }

  async #bringBack(dir: number, isSeen: boolean): Promise<void> {
    if (!this.#server.away.has(dir)) return;
    await this.#server.bringBack(dir);
    if (isSeen) await this.#untilSeen(dir, true);
  }

  /** Waits until the server shows a directory as serving, or not; a while at most. */
  async #untilSeen(dir: number, isBack: boolean): Promise<void> {
    const name = this.#server.dirs[dir]!;
    await holdsWithin(NOTICE_MS, async () => {
      const volume = (await this.#server.volumes()).find((each) => each.name === name);
      return (volume !== undefined && volume.life === 'active') === isBack;
    });
  }

  async #swap(one: number, other: number): Promise<void> {
    if (this.#server.away.has(one) || this.#server.away.has(other)) return;
    await this.#server.stop();
    await this.#server.swap(one, other);
    await this.start();
  }

  async #compact(): Promise<void> {
    await this.#server.runTask('compact');
    this.#model.compacted(Date.now());
  }

  /** Kills the process in the middle of something. */
  async #crash({ during, content, after_ms }: Operation & { op: 'crash' }): Promise<void> {
    const work = this.#under(during, CONTENTS[content]!);
    await pause(after_ms);
    await this.#server.process?.kill();
    await work;
    await this.#server.kill();
    if (during === 'compact') this.#model.compacted(Date.now());
    await this.start();
  }

  /** Never rejects: the process is killed under it. */
  async #under(during: (Operation & { op: 'crash' })['during'], content: Content): Promise<void> {
    if (during === 'compact' || during === 'repair') {
      await this.#server.beginTask(during).catch(() => undefined);
      return;
    }
    const sent_ms = Date.now();
    if (during === 'put') {
      const path = `/o/${content.address}`;
      const reply = await this.#attempt(() => this.#server.request('PUT', path, { body: content.bytes }));
      if (reply?.status === 200 || reply?.status === 201) this.#model.stored(content, sent_ms);
      else this.#model.maybeStored(content);
      return;
    }
    const index = this.#model.uploads.findIndex((upload) => upload !== undefined);
    const upload = this.#model.uploads[index];
    if (upload === undefined) return;
    // Without a question before: the offset may be stale, and then nothing is added.
    this.#model.maybeStored(upload.content);
    const headers = { ...UPLOAD_BYTES, 'upload-offset': String(upload.offset) };
    const body = upload.content.bytes.subarray(upload.offset);
    const reply = await this.#attempt(() => this.#server.request('PATCH', upload.path, { body, headers }));
    if (reply?.status === 204) this.#completed(index, upload, sent_ms);
  }

  /** Waits until every volume serves and is current, and takes back by hand the volumes that need a decision. */
  async #untilAllServe(): Promise<void> {
    const areServing = async (): Promise<boolean> => {
      const volumes = await this.#server.volumes();
      return volumes.length === this.#server.dirs.length && volumes.every(isServing);
    };
    if (await holdsWithin(PATIENCE_MS / 2, areServing)) return;
    for (const { name } of (await this.#server.volumes()).filter((volume) => !isServing(volume))) {
      await this.#attempt(() =>
        this.#server.request('POST', `/admin/volumes/restore?volume=${encodeURIComponent(name)}`),
      );
    }
    if (await holdsWithin(PATIENCE_MS, areServing)) return;
    throw new Violation(`volumes do not come back: ${JSON.stringify(await this.#server.volumes())}`);
  }

  async #repair(): Promise<void> {
    let last = '';
    for (let attempt = 0; attempt < REPAIRS_MAX; attempt++) {
      const task = await this.#server.runTask('repair');
      if (task.state === 'done') return;
      last = JSON.stringify(task);
      await pause(300);
    }
    throw new Violation(`repair does not succeed though every directory is back: ${last}`);
  }

  /** Undefined when the connection breaks. */
  async #attempt(ask: () => Promise<Reply>): Promise<Reply | undefined> {
    try {
      return await ask();
    } catch {
      return undefined;
    }
  }

  /** Repeats a request while it is refused and has to be granted, a while at most. */
  async #insist(
    ask: () => Promise<Reply>,
    isAnswer: (reply: Reply) => boolean,
    isRequired: () => boolean,
  ): Promise<Reply | undefined> {
    let reply: Reply | undefined;
    const until_ms = performance.now() + PATIENCE_MS;
    for (;;) {
      reply = await this.#attempt(ask);
      if (reply !== undefined && isAnswer(reply)) return reply;
      if (this.#server.process?.running !== true) throw new Violation('the process ended by itself');
      if (!isRequired() || performance.now() > until_ms) return reply;
      await pause(50);
    }
  }
}

const shown = (reply: Reply | undefined): string =>
  reply === undefined ? 'the connection was cut' : `${reply.status} ${reply.text.slice(0, 300)}`;

/** Drops operations while the history still fails, within `ms_max`. */
export async function shrink(history: History, failure: Failure, ms_max: number): Promise<Failure> {
  const until_ms = performance.now() + ms_max;
  let least = failure;
  for (let size = Math.ceil(least.operations.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < least.operations.length;) {
      if (performance.now() > until_ms) return least;
      const operations = least.operations.toSpliced(at, size);
      const smaller = await failureOf({ ...history, operations });
      if (smaller === undefined) at += size;
      else least = smaller;
    }
  }
  return least;
}

export function describeFailure({ seed, profile }: History, { message, operations }: Failure): string {
  const lines = operations.map((operation, index) => `  ${index + 1}. ${describeOperation(operation)}`);
  return `history ${seed} ${JSON.stringify(profile)} fails ${message}\nafter\n${lines.join('\n')}`;
}
