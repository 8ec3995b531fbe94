/** The table of algorithms: the use of each, its parts and its cost. Only algorithms in this table exist. */

export type Use = 'sign' | 'wrap' | 'derive';

export interface AlgorithmRow {
  /** The use of its keys. A key has exactly one use. */
  readonly use: Use;
  /** The signatures that one `sign` call returns, in this order. Empty unless the use is `sign`. */
  readonly signs: readonly SigningAlg[];
  readonly post_quantum: boolean;
  /** CPU time of one use in software, and of one verification, for a short message; see `signCost_us`. */
  readonly use_us: number;
  readonly verify_us: number;
  /** One line for a key list. */
  readonly what: string;
}

/** Algorithms of a single signature, which `verifyWith` verifies. */
export type SigningAlg = 'ed25519' | 'ml-dsa-44' | 'ml-dsa-65' | 'ml-dsa-87';

export type Alg = SigningAlg | 'hybrid' | 'x-wing' | 'aes-256-gcm' | 'hmac-sha256';

type Costs = readonly [use_us: number, verify_us: number];

const signing = (alg: SigningAlg, post_quantum: boolean, [use_us, verify_us]: Costs, what: string): AlgorithmRow => ({
  use: 'sign',
  signs: [alg],
  post_quantum,
  use_us,
  verify_us,
  what,
});

export const ALGORITHMS: Readonly<Record<Alg, AlgorithmRow>> = {
  ed25519: signing('ed25519', false, [40, 120], 'RFC 8032 signatures'),
  'ml-dsa-44': signing('ml-dsa-44', true, [550, 120], 'FIPS 204 signatures, category 2'),
  'ml-dsa-65': signing('ml-dsa-65', true, [900, 170], 'FIPS 204 signatures, category 3'),
  'ml-dsa-87': signing('ml-dsa-87', true, [1100, 260], 'FIPS 204 signatures, category 5'),
  hybrid: {
    use: 'sign',
    signs: ['ed25519', 'ml-dsa-65'],
    post_quantum: true,
    use_us: 940,
    verify_us: 290,
    what: 'an Ed25519 and an ML-DSA-65 signature over the same bytes',
  },
  'x-wing': {
    use: 'wrap',
    signs: [],
    post_quantum: true,
    use_us: 200,
    verify_us: 0,
    what: 'hybrid of X25519 and ML-KEM-768, then AES-256-GCM with a fresh key for each wrap',
  },
  'aes-256-gcm': {
    use: 'wrap',
    signs: [],
    post_quantum: true,
    use_us: 40,
    verify_us: 0,
    what: 'authenticated encryption with counted nonces',
  },
  'hmac-sha256': {
    use: 'derive',
    signs: [],
    post_quantum: true,
    use_us: 40,
    verify_us: 0,
    what: 'secrets derived by HKDF-Expand (RFC 5869)',
  },
};

/** CPU time of hashing, per KiB of the message and per signature over it. */
const HASH_US_PER_KIB = 4;

/** CPU time of signing a message of this length in software. Fair queues use it as the cost of a request. */
export function signCost_us(alg: Alg, message_bytes: number): number {
  const { use_us, signs } = ALGORITHMS[alg];
  return use_us + signs.length * hashCost_us(message_bytes);
}

/** Like `signCost_us`, for one verification. */
export function verifyCost_us(alg: SigningAlg, message_bytes: number): number {
  return ALGORITHMS[alg].verify_us + hashCost_us(message_bytes);
}

const hashCost_us = (bytes: number): number => (bytes >> 10) * HASH_US_PER_KIB;

/** Whether untrusted text names an algorithm. */
export function isAlg(text: unknown): text is Alg {
  return typeof text === 'string' && Object.hasOwn(ALGORITHMS, text);
}

export const ALGS = Object.keys(ALGORITHMS) as readonly Alg[];
