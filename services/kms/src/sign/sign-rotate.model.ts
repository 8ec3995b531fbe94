/**
 * Model of signing against rotation, on the real key registry, key operations and signer. The explorer decides when the
 * backend and the disk respond.
 *
 * Once a rotation has been acknowledged, no request gets a signature of the version that it retired. A version that signs is
 * on disk, and its kid belongs to its key. Concurrent rotations create separate versions.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import type { Backend } from '@ron/custody';
import { isRonError } from '@ron/kernel';
import type { KeyRegistry } from '../keys/key-registry.ts';
import { KEYS } from '../vault/tables.ts';
import { ModelStore, START } from '../keys/store.model.ts';
import { headOf } from '../keys/key-record.ts';
import type { KeyOperations } from '../keys/key-operations.ts';
import type { SignBatch, Signed, Signer } from './signer.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly KeyRegistry: typeof KeyRegistry;
  readonly KeyOperations: typeof KeyOperations;
  readonly Signer: typeof Signer;
}

export interface SignRotateInit {
  readonly rotators: number;
  /** Whether each signer names the version. */
  readonly signers: readonly ('any version' | 'version 1')[];
}

const { name: NAME } = START;
const NEVER = new AbortController().signal;

export function signAgainstRotate(parts: Parts, init: SignRotateInit): Build {
  return (world) => {
    const store = new ModelStore(world, START);
    const registry = new parts.KeyRegistry({ store, keys_max: 10 });
    const operations = new parts.KeyOperations(registry, modelBackend(world));
    const signer = new parts.Signer(registry);
    const batch = modelBatch(world);
    /** The highest version whose rotation was acknowledged. */
    let acknowledged = 1;
    const versions: number[] = [];
    for (let at = 0; at < init.rotators; at++) {
      world.task(`rotator ${at}`, async () => {
        const { version } = headOf(await operations.rotate(NAME, undefined, NEVER));
        versions.push(version);
        acknowledged = Math.max(acknowledged, version);
      });
    }
    init.signers.forEach((which, at) => {
      world.task(`signer ${at}`, async () => {
        const kid = which === 'any version' ? NAME : `${NAME}#v1`;
        try {
          assertValid(
            await signer.sign({ kid, payload_b3: '0' }, batch),
            acknowledged,
            (store.durable(KEYS, NAME) as { versions: number }).versions,
          );
        } catch (error) {
          if (!isRonError(error, 'conflict')) throw error;
          assert.equal(which, 'version 1', 'only a request that names a version is refused after its rotation');
        }
      });
    });
    return {
      final: () => {
        assert.equal(new Set(versions).size, init.rotators, 'each rotation creates its own version');
        assert.equal((store.durable(KEYS, NAME) as { versions: number }).versions, 1 + init.rotators);
      },
    };
  };
}

/** The version is not retired, its kid belongs to its key, and it is on disk. */
function assertValid(signed: Signed, acknowledged: number, durable: number): void {
  const { version, handle } = signed.found.version;
  const late = `version ${version} signed after the rotation to ${acknowledged} was acknowledged`;
  assert.ok(version >= acknowledged, late);
  // [kms I-1] [kms I-2]
  assert.equal(signed.kid, `${NAME}#v${version}`);
  const signature = Buffer.from(signed.signatures[0]!.signature).toString();
  assert.equal(signature, handle, 'the kid belongs to another key');
  assert.ok(durable >= version, `version ${version} signed and is not on disk`);
}

function modelBackend(world: World): Backend {
  let created = 1;
  const backend = {
    create: async () => {
      await world.io('create a key');
      created += 1;
      return { key: `key ${created}`, alg: 'ed25519', public: [] };
    },
    destroy: async () => undefined,
  };
  return backend as unknown as Backend;
}

/** A signature is the handle of the key that made it. */
const modelBatch = (world: World): Pick<SignBatch, 'sign'> => ({
  sign: async (handle) => {
    await world.io(`sign with ${handle}`);
    return [{ alg: 'ed25519', signature: Buffer.from(handle) }];
  },
});
