/**
 * A model of checks while keys and revocations change, on the real checker, key source and revocations; the explorer
 * decides when the key service answers.
 *
 * Contract: once a key is known to be retired, every later check refuses tokens under it, even a token that was accepted
 * before. A revocation that was applied is in force for every later check, even for cached tokens, and no older document
 * undoes it.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import type { Build } from '@ron/explorer';
import { mintWith } from '../capability/capability.ts';
import type { Checker } from './checker.ts';
import { keyIdOf, type DerivedKeySource, type KeyCache, type KeyDeriver } from '../keys/derived-keys.ts';
import { MemoryKeySource } from '../keys/key-source.ts';
import { subjectTag, type Revocations } from '../revocations/revocations.ts';

/** The classes under test; one of them a mutant in the tests of the models. */
export interface Parts {
  readonly Checker: typeof Checker;
  readonly DerivedKeySource: typeof DerivedKeySource;
  readonly Revocations: typeof Revocations;
}

const NEVER = new AbortController().signal;
const secretOf = (label: string, version: number): Uint8Array =>
  new Uint8Array(createHmac('sha256', `root ${version}`).update(label).digest());

function tokenOf(key: Uint8Array, key_id: string, epoch = 0): string {
  const claim = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 86_400_000, subject: 'alice', epoch } as const;
  return mintWith(key, key_id, claim).token;
}

async function isAccepted(checker: Checker, token: string): Promise<boolean | undefined> {
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  try {
    return (await checker.checkHeaders(request, NEVER)).ok;
  } catch {
    return undefined; // The source was not available: no verdict.
  }
}

/** Version 1 is retired between two requests with a token under it. Both versions are cached from an earlier start. */
export function keysAgainstChecks(parts: Parts): Build {
  return (world) => {
    let version_min = 1;
    const secret = (version: number): Uint8Array => secretOf(`audience/storage/v${version}`, version);
    const deriver: KeyDeriver = {
      state: () => Promise.reject(new Error('not polled')),
      async derive(_audience, version = 2) {
        // The answer is decided when the request arrives, not when the answer is received.
        const least = version_min;
        await world.io(`kms: from ${least} on`);
        return { version, version_min: least, secret: secret(version) };
      },
    };
    const known = [2, 1].map((version) => ({ key_id: keyIdOf(version, secret(version)), secret: secret(version) }));
    const cache: KeyCache = {
      load: (audience) => (audience === 'storage' ? { audience, keys: known } : undefined),
      save: () => Promise.resolve(),
    };
    const keys = new parts.DerivedKeySource({ deriver, cache, requery_ms: 1e9 });
    const checker = new parts.Checker({ audience: 'storage', keys });
    const old = tokenOf(secret(1), keyIdOf(1, secret(1)));
    world.task('retire', async () => {
      version_min = 2;
      await keys.refresh('storage', NEVER).catch(() => undefined);
    });
    world.task('check', async () => {
      await isAccepted(checker, old);
      await world.io('next request');
      const isGone = !keys.toJSON().includes(keyIdOf(1, secret(1)));
      assert.ok(!(isGone && (await isAccepted(checker, old)) === true), 'a retired key is valid again');
    });
    return {};
  };
}

/** Alice is revoked; then an older document arrives. */
export function revocationsAgainstChecks(parts: Parts): Build {
  return (world) => {
    const keys = new MemoryKeySource({
      audience: 'storage',
      keys: [{ key_id: 'k', secret: new Uint8Array(32).fill(5) }],
    });
    const epochs = new parts.Revocations();
    const checker = new parts.Checker({ audience: 'storage', keys, epochs });
    const token = tokenOf(new Uint8Array(32).fill(5), 'k', 100);
    const revoked = { version: 2, all: 0, subjects: { [subjectTag('alice')]: 101 }, ids: {} };
    let heard = false;
    world.task('passport', async () => {
      await world.io('revoked');
      epochs.apply(revoked);
      heard = true;
      await world.io('older');
      epochs.apply({ version: 1, all: 0, subjects: {}, ids: {} });
    });
    for (const [name, requests] of [['check', 2] as const, ['check too', 1] as const]) {
      world.task(name, async () => {
        for (let times = 0; times < requests; times++) {
          if (times > 0) await world.io('next request');
          const before = heard;
          const verdict = await isAccepted(checker, token);
          assert.ok(!(before && verdict === true), 'a revoked token is accepted');
        }
      });
    }
    return {};
  };
}
