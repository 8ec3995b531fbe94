/** Go's own `sumdb/note` and `sumdb/tlog` read our checkpoints, tiles, bundles and proofs. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { copyLog, dirSource, KeyType, TransparencyLog } from '@ron/tlog';
import { memorySigner } from '@ron/tlog/testing';
import { tempDirFor } from '@ron/testkit';

const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const SIZES = [3, 253, 1280, 70_000];
/** The directory of Go sources in Debian packages. */
const GO = { GO111MODULE: 'off', GOPATH: process.env['GOPATH'] ?? '/usr/share/gocode', CGO_ENABLED: '0', GOFLAGS: '' };
const MISSING = missing();

function missing(): string | false {
  const found = spawnSync('go', ['list', 'golang.org/x/mod/sumdb/tlog'], { env: { ...process.env, ...GO } });
  return found.status === 0 ? false : 'needs Go and x/mod: apt-get install golang-go golang-golang-x-mod-dev';
}

const asBase64 = (hashes: readonly Uint8Array[]): string[] =>
  hashes.map((hash) => Buffer.from(hash).toString('base64'));

test('Go accepts checkpoints, tiles, bundles and proofs', { skip: MISSING }, async (t) => {
  const dir = tempDirFor(t);
  const checker = join(dir, 'check');
  const main = fileURLToPath(new URL('go-check/main.go', import.meta.url));
  const env = { ...process.env, ...GO, GOCACHE: process.env['GOCACHE'] ?? join(dir, 'cache') };
  const built = spawnSync('go', ['build', '-o', checker, main], { env, encoding: 'utf8' });
  assert.equal(built.status, 0, built.stderr);

  const signers = [memorySigner(ORIGIN), memorySigner(ORIGIN, KeyType.mlDsa44)];
  await using log = await TransparencyLog.open({ dir: join(dir, 'log'), origin: ORIGIN, signers, signal });
  await using source = await dirSource(join(dir, 'log'));
  let before = await log.writeCheckpoint(signal);
  for (const size of SIZES) {
    const entries = Array.from({ length: size - log.size }, (_, index) => Buffer.from(`entry ${log.size + index}`));
    await log.append(entries, signal);
    await log.writeCheckpoint(signal);
    await copyLog(source, join(dir, 'copy'), { signal });
    const index = Math.floor(size * 0.7);
    const { path } = await log.proof(index);
    const consistency = before.size === 0 ? [] : await log.consistency(before.size, size);
    // Go has no consistency proof from an empty tree.
    const old = before.size === 0 ? log.checkpoint! : before;
    const input = {
      Index: index,
      Entry: `entry ${index}`,
      Path: asBase64(path),
      OldNote: old.text,
      Consistency: asBase64(consistency),
    };
    const args = [join(dir, 'copy'), signers[0]!.vkey];
    const checked = spawnSync(checker, args, { input: JSON.stringify(input), encoding: 'utf8' });
    assert.equal(checked.stdout, `${size} entries\n`, checked.stderr);
    before = log.checkpoint!;
  }
});
