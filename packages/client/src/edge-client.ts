/**
 * A client of edge: packs of map tiles, and the cache.
 *
 * Contract: `putPack` succeeds only if the service states the address that was computed here; `readPack` yields only bytes
 * that are proven against the address. Only idempotent calls are made, so all may be retried, except the upload of a stream.
 * Bound: answers as in JsonCalls, one chunk of an upload. Cancellation: by the signal of each call and of the client.
 */
import { RonError } from '@ron/kernel/core';
import type {
  Address,
  EdgePurgeDto,
  EdgePurgedDto,
  EdgeFillKeysDto,
  EdgeWhyDto,
  PackDto,
  PackListDto,
} from '@ron/proto';
import { isReplayable, replayable, streamOf, type PutBody } from './body.ts';
import { JsonCalls } from './json-calls.ts';
import type { OnProgress } from './progress.ts';
import { queryOf } from './query.ts';
import { requireSameAddress } from './receipt.ts';
import type { CallOptions } from './storage-client.ts';
import { sendStreamed } from './streamed-upload.ts';
import { Transport, type TransportInit } from './transport.ts';
import { readVerified, type ReadInit } from './verified-read.ts';

export interface PutPackInit extends CallOptions {
  /** The upload is refused if the bytes have another address. */
  readonly expect?: Address | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** Edge verifies a pack within 30 s after its last byte. */
const VERIFY_MS = 40_000;
/** For a pack that edge reads from storage. */
const FETCH_MS = 3_600_000;

export class EdgeClient {
  readonly #transport: Transport;
  readonly #calls: JsonCalls;
  readonly #fetched: JsonCalls;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
    this.#calls = new JsonCalls('edge/', init);
    this.#fetched = new JsonCalls('edge/', { ...init, deadline_ms: FETCH_MS });
  }

  get url(): string {
    return this.#transport.base.href;
  }

  /** The mounted packs, and the files that cannot be mounted. */
  async packs(init: CallOptions = {}): Promise<PackListDto> {
    return await this.#get('packs', 'packs', init);
  }

  /** Uploads a pack. Resolves once it is verified and mounted. Rejects with `validation` and the reason if it is refused. */
  async putPack(name: string, body: PutBody, init: PutPackInit = {}): Promise<PackDto> {
    const path = `edge/packs/${encodeURIComponent(name)}${queryOf({ expect: init.expect })}`;
    const send = async (chunks: AsyncIterable<Uint8Array>, total_bytes: number | undefined, signal: AbortSignal) => {
      const { response, address } = await sendStreamed(this.#transport, 'put_pack', chunks, {
        method: 'PUT',
        path,
        headers: { 'Content-Type': 'application/octet-stream' },
        total_bytes,
        onProgress: init.onProgress,
        signal,
        answer_ms: VERIFY_MS,
      });
      const pack = (await response.json()) as PackDto;
      return { ...pack, address: requireSameAddress(pack.address, address) };
    };
    if (!isReplayable(body)) return await send(streamOf(body), undefined, this.#transport.signalFor(init.signal));
    const source = replayable(body);
    const work = (signal: AbortSignal): Promise<PackDto> => send(source.read(0), source.size, signal);
    return await this.#transport.call('put_pack', work, { signal: init.signal, body_bytes: source.size });
  }

  /** Mounts a pack that edge reads from its storage. */
  async putPackFrom(name: string, address: Address, init: CallOptions = {}): Promise<PackDto> {
    const path = `packs/${encodeURIComponent(name)}${queryOf({ address, expect: address })}`;
    const pack = await this.#fetched.put<PackDto>('put_pack', path, undefined, init.signal);
    if (pack === undefined) throw empty('put_pack');
    return { ...pack, address: requireSameAddress(pack.address, address) };
  }

  async removePack(name: string, init: CallOptions = {}): Promise<void> {
    await this.#calls.delete('remove_pack', `packs/${encodeURIComponent(name)}`, init.signal);
  }

  /** The bytes of a PMTiles pack, each proven against the address before it is yielded. */
  readPack(name: string, address: Address, init: ReadInit = {}): AsyncGenerator<Uint8Array, void, void> {
    const path = `edge/assets/pack/${encodeURIComponent(name)}.pmtiles`;
    return readVerified(this.#transport, address, { ...init, path });
  }

  /** Why an asset is served as it is. `path` is below `/edge/assets/`. */
  async why(path: string, init: CallOptions = {}): Promise<EdgeWhyDto> {
    return await this.#get('why', `why${queryOf({ path })}`, init);
  }

  /** Removes cached assets. Fills that began before are not cached afterwards. */
  async purge(selection: EdgePurgeDto, init: CallOptions = {}): Promise<EdgePurgedDto> {
    return await this.#calls.post('purge', 'purge', selection, init.signal);
  }

  /** The name of the fill log and the keys that sign it. Keep a copy if you do not trust the service. */
  async fillKeys(init: CallOptions = {}): Promise<EdgeFillKeysDto> {
    return await this.#get('fills.keys', 'fills/keys', init);
  }

  async #get<T>(op: string, path: string, init: CallOptions): Promise<T> {
    const answer = await this.#calls.get<T>(op, path, init.signal);
    if (answer === undefined) throw empty(op);
    return answer;
  }
}

const empty = (op: string): RonError => new RonError('integrity', 'the server sent an empty response', { op });
