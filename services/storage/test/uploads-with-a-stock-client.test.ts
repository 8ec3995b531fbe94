/** tus-js-client as it comes, against storage: its default and small pieces, interrupted and resumed over kill -9. */
import assert from 'node:assert/strict';
import { createReadStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { Upload, type UploadOptions } from 'tus-js-client';
import { bytesOf, KIB, MIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom, type ServiceProcess } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';
import { AMNESIA, startService } from './support.ts';

interface Outcome {
  readonly url: string;
  readonly address: string | undefined;
  /** Method, status and offset of each answer, in order. */
  readonly answers: readonly string[];
}

/** Sends `source` to its end with the client's own defaults, but for `options`. */
function sendAll(source: UploadOptions['uploadUrl'] | Buffer | Readable, options: UploadOptions): Promise<Outcome> {
  const answers: string[] = [];
  return new Promise((resolve, reject) => {
    const upload: Upload = new Upload(source as unknown as Buffer, {
      ...options,
      onAfterResponse: (req, res) => {
        answers.push(`${req.getMethod()} ${res.getStatus()} ${res.getHeader('Upload-Offset') ?? ''}`.trim());
      },
      onError: reject,
      onSuccess: ({ lastResponse }) => {
        resolve({ url: upload.url!, address: lastResponse.getHeader('Ron-Address'), answers });
      },
    });
    upload.start();
  });
}

for (const [mode, flags] of Object.entries({ 'on disk': [], 'in memory': AMNESIA })) {
  describe(`a stock client, ${mode}`, () => {
    test('with its defaults, and with pieces of any size', async () => {
      await using service = await startService({ flags });
      const headers = { ...(await service.allow()) };
      const bytes = bytesOf(1_000_000, 1);
      for (const chunkSize of [undefined, 300_000, 64 * KIB, 10_000]) {
        const { address, answers } = await sendAll(bytes, {
          endpoint: `${service.url}/uploads`,
          headers,
          metadata: { filename: 'x.bin', filetype: 'application/x-stock' },
          ...(chunkSize !== undefined && { chunkSize }),
        });
        assert.equal(address, addressOf(bytes));
        assert.equal(answers.length, 1 + Math.ceil(bytes.length / (chunkSize ?? Infinity) || 1));
      }
      const reply = await service.send('GET', `/o/${addressOf(bytes)}`);
      assert.ok(reply.body.equals(bytes));
      assert.equal(reply.headers['content-type'], 'application/x-stock');
    });

    test('data with the creation, PATCH by POST, a size that comes last, a file, nothing at all', async () => {
      await using service = await startService({ flags });
      await using temp = await tempDir();
      const common = { endpoint: `${service.url}/uploads`, headers: { ...(await service.allow()) } };
      const bytes = bytesOf(500_000, 2);
      const wanted = addressOf(bytes);
      const created = await sendAll(bytes, { ...common, uploadDataDuringCreation: true });
      assert.deepEqual([created.address, created.answers], [wanted, ['POST 201 500000']]);
      const posted = await sendAll(bytes, { ...common, overridePatchMethod: true, chunkSize: 200_000 });
      assert.equal(posted.address, wanted);
      const deferred = { ...common, uploadLengthDeferred: true, chunkSize: 100_000 };
      assert.equal((await sendAll(Readable.from([bytes]), deferred)).address, wanted);
      const file = join(temp.path, 'file');
      await writeFile(file, bytes);
      const streamed = { ...common, chunkSize: 150_000, uploadSize: bytes.length };
      assert.equal((await sendAll(createReadStream(file), streamed)).address, wanted);
      assert.equal((await sendAll(Buffer.alloc(0), common)).address, addressOf(Buffer.alloc(0)));
    });

    test('an upload that the client gives up is gone', async () => {
      await using service = await startService({ flags });
      const headers = { ...(await service.allow()) };
      const bytes = bytesOf(2 * MIB, 3);
      const url = await new Promise<string>((resolve, reject) => {
        const upload: Upload = new Upload(bytes, {
          endpoint: `${service.url}/uploads`,
          headers,
          chunkSize: 100_000,
          onError: reject,
          onChunkComplete: (_size, accepted) => {
            if (accepted < 500_000) return;
            upload.abort(true).then(() => resolve(upload.url!), reject);
          },
        });
        upload.start();
      });
      const reply = await service.send('HEAD', new URL(url).pathname, {
        headers: { ...headers, 'tus-resumable': '1.0.0' },
      });
      assert.equal(reply.status, 404);
    });
  });
}

describe('a stock client and kill -9', () => {
  /** A process that comes back at the same address. */
  async function restartable(run: (init: Restartable) => Promise<void>): Promise<void> {
    await using temp = await tempDir();
    const headers = await authorizationFrom(keysIn(temp.path), 'storage');
    const flags = [`--data_dirs=${join(temp.path, 'data')}`, `--auth.key_file=${keysIn(temp.path)}`];
    const first = await startProcess({ flags });
    const state = { storage: first };
    const bind = `--server.bind=127.0.0.1:${first.port}`;
    try {
      await run({
        url: first.url,
        headers: { ...headers },
        storage: () => state.storage,
        killAndRestart: async () => {
          await state.storage.kill();
          state.storage = await startProcess({ flags: [...flags, bind] });
        },
      });
    } finally {
      await state.storage.kill();
    }
  }

  interface Restartable {
    readonly url: string;
    readonly headers: Record<string, string>;
    readonly storage: () => ServiceProcess;
    readonly killAndRestart: () => Promise<void>;
  }

  for (const { name, size, chunkSize, kill_at } of [
    // Far more than can be on its way when the kill comes.
    { name: 'in one request', size: 160 * MIB, chunkSize: undefined, kill_at: [44 * MIB] },
    { name: 'in small pieces', size: 2 * MIB, chunkSize: 50_000, kill_at: [500_000, 1_300_000] },
  ]) {
    test(`sent ${name}: it goes on by itself where it was`, () =>
      restartable(async ({ url, headers, storage, killAndRestart }) => {
        const bytes = bytesOf(size, 4);
        const kills = [...kill_at];
        const restarts: Promise<void>[] = [];
        const {
          address,
          answers,
          url: upload_url,
        } = await sendAll(bytes, {
          endpoint: `${url}/uploads`,
          headers,
          ...(chunkSize !== undefined && { chunkSize }),
          // While the service starts it answers 503. The client takes that for an upload that is gone, and begins anew.
          onBeforeRequest: async (req) => {
            if (req.getMethod() === 'HEAD') await Promise.all(restarts);
          },
          onProgress: (sent) => {
            if (kills[0] === undefined || sent < kills[0]) return;
            kills.shift();
            restarts.push(killAndRestart());
          },
        });
        await Promise.all(restarts);
        assert.equal(restarts.length, kill_at.length, 'it was interrupted');
        assert.equal(address, addressOf(bytes));
        const resumed = answers
          .filter((answer) => answer.startsWith('HEAD 200'))
          .map((answer) => Number(answer.slice(9)));
        assert.ok(resumed.length >= 1, answers.join());
        for (const offset of resumed) assert.ok(offset > 0, `it had to begin again: ${answers.join()}`);
        assert.equal(answers.filter((answer) => answer.startsWith('POST')).length, 1, 'one upload, not several');
        assert.ok((await storage().send('GET', `/o/${address}`)).body.equals(bytes));
        // A client that died before it saw the last answer still learns the address, also after another restart.
        await killAndRestart();
        const again = await sendAll(bytes, { endpoint: `${url}/uploads`, uploadUrl: upload_url, headers });
        assert.deepEqual([again.address, again.answers], [address, [`HEAD 200 ${size}`]]);
      }));
  }

  test('a client that is started anew goes on with the URL that it kept', () =>
    restartable(async ({ url, headers, killAndRestart }) => {
      const bytes = bytesOf(3 * MIB, 5);
      const kept = await new Promise<string>((resolve, reject) => {
        const upload: Upload = new Upload(bytes, {
          endpoint: `${url}/uploads`,
          headers,
          chunkSize: 200_000,
          onError: reject,
          onChunkComplete: (_size, accepted) => {
            if (accepted >= 1_000_000) upload.abort().then(() => resolve(upload.url!), reject);
          },
        });
        upload.start();
      });
      await killAndRestart();
      const { address, answers } = await sendAll(bytes, { endpoint: `${url}/uploads`, uploadUrl: kept, headers });
      assert.equal(address, addressOf(bytes));
      assert.match(answers[0]!, /^HEAD 200 1000000$|^HEAD 200 1[0-9]{6}$/);
      assert.equal(answers.length, 2);
    }));
});
