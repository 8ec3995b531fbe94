/**
 * Keys in AWS KMS, for wrapping and deriving, through the official client over `Egress`.
 *
 * Contract: the keys never leave AWS KMS. Each wrap requests a data key, which becomes the AES key of one envelope (form 04
 * of envelope.ts) and is zeroed: a plaintext of any allowed size costs one call and is never sent. Derived secrets are
 * HMACs computed by KMS. `aad` is bound locally and not sent, because the cloud logs request parameters.
 * A destroyed key is unusable immediately; AWS erases it after its own waiting period of seven days.
 * A key that AWS refuses (access denied, disabled) is refused alone; outages and bad credentials make the backend unavailable.
 * The endpoint needs TLS unless it is on loopback.
 * Bound: `call_ms_max` per HTTPS call; this class does not retry. Overflow: throttling by AWS is `busy`.
 * Cancellation: the signal aborts the call.
 */
import type * as Aws from '@aws-sdk/client-kms';
import { isTlsOrLoopback, type EgressInit } from '@ron/egress';
import { Deadline, isRonError, RonError, sched } from '@ron/kernel';
import type { Alg } from '../algorithms/algorithms.ts';
import { Availability } from '../backend/availability.ts';
import { RefusedKeys } from '../backend/refused-keys.ts';
import {
  algOfName,
  classWith,
  unavailable,
  cannotUnwrap,
  isKeyName,
  noSuchKey,
  requireAlg,
  requireDerive,
  requireLabel,
  requireUnwrap,
  requireUse,
  requireWrap,
  type Attestation,
  type ComputedIn,
  type Backend,
  type BackendState,
  type KeyHandle,
} from '../backend/backend.ts';
import { EgressHandler } from './egress-handler.ts';
import { FORM, openOnce, sealOnce, splitEnvelope } from '../algorithms/envelope.ts';
import { expand } from '../algorithms/expand.ts';

const CALL_MS_MAX = 5000;
const DELETION_DAYS = 7;
/** AWS returns a data key for each envelope; the AES-GCM of the envelope is computed here. */
const COMPUTED: Readonly<Partial<Record<Alg, ComputedIn>>> = {
  'aes-256-gcm': 'backend; the key of each envelope in process memory',
  'hmac-sha256': 'backend',
};
/** The encryption context, which AWS binds to data keys. */
const CONTEXT = { 'ron-kms': 'wrap/v1' };

export interface CloudBackendInit {
  region: string;
  /** Default: the public endpoint of the region. */
  endpoint?: string;
  /** Default: the official client's lookup (environment, profile, instance role). */
  credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
  /** Default 5000. */
  call_ms_max?: number;
  /** Allows networks for an endpoint without a public address. Default: none. */
  egress?: Pick<EgressInit, 'networks' | 'ca'>;
  signal: AbortSignal;
}

export class CloudBackend implements Backend {
  readonly name = 'cloud';
  readonly attestation_class = 'cloud:aws-kms';
  readonly algs: ReadonlySet<Alg> = new Set<Alg>(['aes-256-gcm', 'hmac-sha256']);
  readonly #init: CloudBackendInit;
  readonly #aws: typeof Aws;
  readonly #client: Aws.KMSClient;
  readonly #handler: EgressHandler;
  readonly #availability = new Availability();
  readonly #refused = new RefusedKeys();
  #isClosed = false;

  private constructor(init: CloudBackendInit, aws: typeof Aws) {
    this.#init = init;
    this.#aws = aws;
    this.#handler = new EgressHandler({
      endpoint: init.endpoint,
      call_ms_max: init.call_ms_max ?? CALL_MS_MAX,
      egress: init.egress ?? {},
    });
    this.#client = new aws.KMSClient({
      region: init.region,
      maxAttempts: 1,
      requestHandler: this.#handler,
      ...(init.endpoint === undefined ? {} : { endpoint: init.endpoint }),
      ...(init.credentials === undefined ? {} : { credentials: init.credentials }),
    });
  }

  /** Rejects if AWS KMS does not respond or rejects the credentials, and with `validation` for an endpoint without TLS. */
  static async open(init: CloudBackendInit): Promise<CloudBackend> {
    if (init.endpoint !== undefined && !isTlsOrLoopback(init.endpoint))
      throw new RonError(
        'validation',
        'the endpoint of the cloud must be an https URL: credentials and keys are sent to it',
      );
    // Loaded on demand: it is larger than the rest of the process.
    const backend = new CloudBackend(init, await import('@aws-sdk/client-kms'));
    try {
      await backend.probe(init.signal);
      return backend;
    } catch (error) {
      await backend.close();
      throw error;
    }
  }

  attestationClassOf(alg: Alg): string {
    return classWith(this.attestation_class, COMPUTED[alg] ?? 'backend');
  }

  state(): BackendState {
    return this.#isClosed ? { ok: false, reason: 'the backend is closed' } : this.#availability.state();
  }

  async create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle> {
    requireAlg(this.algs, alg, this.name);
    requireLabel(label);
    const command = new this.#aws.CreateKeyCommand({
      Description: label,
      ...(alg === 'aes-256-gcm'
        ? { KeySpec: 'SYMMETRIC_DEFAULT', KeyUsage: 'ENCRYPT_DECRYPT' }
        : { KeySpec: 'HMAC_256', KeyUsage: 'GENERATE_VERIFY_MAC' }),
    });
    const made = await this.#call(signal, (options) => this.#client.send(command, options));
    return { key: `${alg}.${given(made.KeyMetadata?.KeyId)}`, alg, public: [] };
  }

  async open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle> {
    if (algOfName(key) !== alg) throw noSuchKey();
    const command = new this.#aws.DescribeKeyCommand({ KeyId: idOf(key) });
    const found = await this.#call(signal, (options) => this.#client.send(command, options), { key });
    if (found.KeyMetadata?.KeyState === 'Disabled') throw this.#refused.refuse(key, DISABLED);
    if (found.KeyMetadata?.KeyState !== 'Enabled') throw noSuchKey();
    return { key, alg, public: [] };
  }

  async destroy(key: string, signal: AbortSignal): Promise<void> {
    if (!isKeyName(key)) return;
    const command = new this.#aws.ScheduleKeyDeletionCommand({
      KeyId: idOf(key),
      PendingWindowInDays: DELETION_DAYS,
    });
    try {
      // Without `key`: a key that may not be used may still be deleted.
      await this.#call(signal, (options) => this.#client.send(command, options));
    } catch (error) {
      // Already deleted, or scheduled for deletion.
      if (!isRonError(error, 'not_found')) throw error;
    }
  }

  sign(): Promise<never> {
    return Promise.reject(new RonError('validation', 'the backend cloud does not support signing'));
  }

  signMany(): Promise<never> {
    return this.sign();
  }

  async wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'wrap');
    requireWrap(plaintext, aad);
    const command = new this.#aws.GenerateDataKeyCommand({
      KeyId: idOf(key),
      KeySpec: 'AES_256',
      EncryptionContext: CONTEXT,
    });
    const made = await this.#call(signal, (options) => this.#client.send(command, options), { key });
    return sealOnce(FORM.data_key, given(made.Plaintext), given(made.CiphertextBlob), plaintext, aad);
  }

  async unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'wrap');
    requireUnwrap(wrapped, aad);
    const { prefix, ciphertext } = splitEnvelope(FORM.data_key, wrapped);
    if (prefix.length === 0) throw cannotUnwrap();
    const command = new this.#aws.DecryptCommand({
      KeyId: idOf(key),
      CiphertextBlob: prefix,
      EncryptionContext: CONTEXT,
    });
    const opened = await this.#call(signal, (options) => this.#client.send(command, options), { key });
    return openOnce(FORM.data_key, given(opened.Plaintext), ciphertext, aad);
  }

  async derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'derive');
    requireDerive(label, bytes);
    const hmac = async (data: Uint8Array): Promise<Uint8Array> => {
      const command = new this.#aws.GenerateMacCommand({
        KeyId: idOf(key),
        MacAlgorithm: 'HMAC_SHA_256',
        Message: data,
      });
      return given((await this.#call(signal, (options) => this.#client.send(command, options), { key })).Mac);
    };
    return expand(hmac, label, bytes);
  }

  async attest(): Promise<Attestation> {
    const { region, endpoint } = this.#init;
    return {
      attestation_class: this.attestation_class,
      evidence: {
        provider: 'aws-kms',
        region,
        endpoint: endpoint ?? 'default',
        ...Object.fromEntries(Object.entries(COMPUTED).map(([alg, where]) => [`computed ${alg}`, where])),
        signed: false,
      },
      issued_ms: sched.wall_ms(),
    };
  }

  /** A node may be allowed to use its keys but not to list keys: that answer shows that AWS KMS responds too. */
  async probe(signal: AbortSignal): Promise<void> {
    const command = new this.#aws.ListKeysCommand({ Limit: 1 });
    try {
      await this.#call(signal, (options) => this.#client.send(command, options), { evenIfUnavailable: true });
    } catch (error) {
      if (!isRonError(error) || error.op !== DENIED_OP) throw error;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#client.destroy();
    await this.#handler.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  toJSON(): string {
    return `CloudBackend(${this.#init.region})`;
  }

  async #call<T>(
    signal: AbortSignal,
    send: (options: { abortSignal: AbortSignal }) => Promise<T>,
    { key, evenIfUnavailable = false }: { readonly key?: string; readonly evenIfUnavailable?: boolean } = {},
  ): Promise<T> {
    signal.throwIfAborted();
    if (this.#isClosed) throw unavailable('the backend cloud is closed');
    if (!evenIfUnavailable) this.#availability.admit();
    if (key !== undefined) this.#refused.admit(key);
    const deadline = Deadline.after('cloud', this.#init.call_ms_max ?? CALL_MS_MAX, { signal });
    try {
      const answer = await deadline.run((abortSignal) => send({ abortSignal }));
      this.#availability.recordSuccess();
      return answer;
    } catch (error) {
      // The caller aborted: that does not show that the cloud is unavailable.
      if (signal.aborted) throw signal.reason;
      throw this.#judge(error, key);
    } finally {
      deadline.cancel();
    }
  }

  #judge(error: unknown, key: string | undefined): RonError {
    const name = error instanceof Error ? error.name : '';
    const refusal = REFUSALS[name];
    if (refusal !== undefined) {
      this.#availability.recordSuccess();
      return key === undefined
        ? new RonError('not_ready', refusal, { op: DENIED_OP })
        : this.#refused.refuse(key, refusal);
    }
    const meant = MEANINGS[name];
    if (meant !== undefined) {
      this.#availability.recordSuccess();
      return meant();
    }
    // Local queues are full: that does not show that the cloud is unavailable.
    if (isRonError(error, 'busy')) return error;
    const why = isRonError(error) ? error.message : name;
    const failure = isRonError(error, 'timeout') ? error : unavailable(`AWS KMS is unavailable: ${why}`, error);
    this.#availability.recordFailure(failure);
    return failure;
  }
}

const busy = (): RonError => new RonError('busy', 'AWS KMS throttles requests', { op: 'cloud', retry_after_ms: 1000 });

const DENIED_OP = 'cloud_denied';
const DISABLED = 'the key is disabled in AWS KMS: enable it there';

/** AWS errors about one key, or one kind of request, that an operator can correct in AWS. */
const REFUSALS: Readonly<Record<string, string>> = {
  AccessDeniedException: 'AWS KMS denies access: correct the key policy or the role of this node',
  DisabledException: DISABLED,
};

/** AWS errors about the request itself. Any other error means that KMS is unavailable. */
const MEANINGS: Readonly<Record<string, () => RonError>> = {
  NotFoundException: noSuchKey,
  InvalidArnException: noSuchKey,
  KMSInvalidStateException: noSuchKey,
  InvalidKeyUsageException: noSuchKey,
  InvalidCiphertextException: cannotUnwrap,
  IncorrectKeyException: cannotUnwrap,
  ThrottlingException: busy,
  LimitExceededException: () => new RonError('storage_full', 'the AWS account has reached its key limit'),
};

const idOf = (key: string): string => key.slice(key.indexOf('.') + 1);

function given<T>(value: T | undefined): T {
  if (value === undefined) throw unavailable('AWS KMS returned an incomplete response');
  return value;
}
