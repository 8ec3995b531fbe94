/**
 * Model of signing against disabling and deleting, on the real key registry, key lifecycle and signer. The explorer decides
 * when the backend and the disk respond.
 *
 * Once the withdrawal of a key has been acknowledged, no request gets a signature of it. A deletion is on disk before key
 * material is destroyed, and a signature of a destroyed key is never requested twice.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError } from '@ron/kernel';
import type { KeyLifecycle } from '../keys/key-lifecycle.ts';
import type { KeyRegistry } from '../keys/key-registry.ts';
import type { KeyRecord, KeyVersion } from '../keys/key-record.ts';
import { ModelStore, START } from '../keys/store.model.ts';
import { KEYS, VERSIONS } from '../vault/tables.ts';
import type { Signer } from './signer.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly KeyRegistry: typeof KeyRegistry;
  readonly KeyLifecycle: typeof KeyLifecycle;
  readonly Signer: typeof Signer;
}

export interface SignDisableInit {
  readonly withdrawal: 'disable' | 'delete';
  readonly signers: number;
}

const { name: NAME } = START;
const NEVER = new AbortController().signal;

export function signAgainstDisable(parts: Parts, init: SignDisableInit): Build {
  return (world) => {
    const store = new ModelStore(world, START);
    const registry = new parts.KeyRegistry({ store, keys_max: 10 });
    const destroy = async (): Promise<void> => {
      assert.equal((store.durable(KEYS, NAME) as KeyRecord).deleted, true, 'destroyed before the deletion was on disk');
      await world.io('destroy');
    };
    const lifecycle = new parts.KeyLifecycle(registry, { destroy }, () => 0);
    const signer = new parts.Signer(registry);
    let isWithdrawn = false;
    world.task('owner', async () => {
      if (init.withdrawal === 'disable') await lifecycle.disable(NAME, NEVER);
      else await lifecycle.deleteKey(NAME, NEVER);
      isWithdrawn = true;
      if (init.withdrawal === 'delete') await lifecycle.deleteKey(NAME, NEVER);
    });
    for (let at = 0; at < init.signers; at++) {
      world.task(`signer ${at}`, async () => {
        const sign = async (handle: string): Promise<{ alg: 'ed25519'; signature: Uint8Array }[]> => {
          await world.io('sign');
          return [{ alg: 'ed25519', signature: Buffer.from(handle) }];
        };
        try {
          await signer.sign({ kid: NAME, payload_b3: '0' }, { sign });
          assert.ok(!isWithdrawn, 'signed after the withdrawal was acknowledged');
        } catch (error) {
          if (!isRonError(error, 'conflict')) throw error;
        }
      });
    }
    return {
      final: () => {
        const { disabled, deleted } = store.durable(KEYS, NAME) as KeyRecord;
        assert.equal(disabled ?? deleted, true);
        const version = store.durable(VERSIONS, `${NAME}#000001`) as KeyVersion;
        assert.equal(version.handle, init.withdrawal === 'delete' ? undefined : 'key 1');
      },
    };
  };
}
