/**
 * Keys in AWS KMS, for wrapping and deriving, through the official client over `Egress`.
 *
 * Contract: the keys never leave AWS KMS. Each wrap requests a data key, which becomes the AES key of one envelope (form 04
 * of envelope.ts) and is zeroed: a plaintext of any allowed size costs one call and is never sent. Derived secrets are
 * HMACs computed by KMS. `aad` is bound locally and not sent, because the cloud logs request parameters.
 * A destroyed key is unusable immediately; AWS erases it after its own waiting period of seven days.
 * Bound: `call_ms_max` per HTTPS call; this class does not retry. Overflow: throttling by AWS is `busy`.
 * Cancellation: the signal aborts the call.
 */
import type * as Aws from '@aws-sdk/client-kms';
import type { EgressInit } from '@ron/egress';
import { Deadline, isRonError, RonError, sched } from '@ron/kernel';
import type { Alg } from '../algorithms/algorithms.ts';
import { Availability } from '../backend/availability.ts';
import {
  algOfName,
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
  type Backend,
  type BackendState,
  type KeyHandle,
} from '../backend/backend.ts';
import { EgressHandler } from './egress-handler.ts';
import { FORM, openOnce, sealOnce, splitEnvelope } from '../algorithms/envelope.ts';
import { expand } from '../algorithms/expand.ts';

const CALL_MS_MAX = 5000;
const DELETION_DAYS = 7;
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
  /** Allows networks for an endpoint without a public address, and plain HTTP to them. Default: none. */
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

  /** Rejects if AWS KMS does not respond or rejects the credentials. */
  static async open(init: CloudBackendInit): Promise<CloudBackend> {
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
    const found = await this.#call(signal, (options) => this.#client.send(command, options));
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
    const made = await this.#call(signal, (options) => this.#client.send(command, options));
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
    const opened = await this.#call(signal, (options) => this.#client.send(command, options));
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
      return given((await this.#call(signal, (options) => this.#client.send(command, options))).Mac);
    };
    return expand(hmac, label, bytes);
  }

  async attest(): Promise<Attestation> {
    const { region, endpoint } = this.#init;
    return {
      attestation_class: this.attestation_class,
      evidence: { provider: 'aws-kms', region, endpoint: endpoint ?? 'default', signed: false },
      issued_ms: sched.wall_ms(),
    };
  }

  async probe(signal: AbortSignal): Promise<void> {
    const command = new this.#aws.ListKeysCommand({ Limit: 1 });
    await this.#call(signal, (options) => this.#client.send(command, options), true);
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
    evenIfUnavailable = false,
  ): Promise<T> {
    signal.throwIfAborted();
    if (this.#isClosed) throw unavailable('the backend cloud is closed');
    if (!evenIfUnavailable) this.#availability.admit();
    const deadline = Deadline.after('cloud', this.#init.call_ms_max ?? CALL_MS_MAX, { signal });
    try {
      const answer = await deadline.run((abortSignal) => send({ abortSignal }));
      this.#availability.recordSuccess();
      return answer;
    } catch (error) {
      // The caller aborted: that does not show that the cloud is unavailable.
      if (signal.aborted) throw signal.reason;
      throw this.#judge(error);
    } finally {
      deadline.cancel();
    }
  }

  #judge(error: unknown): RonError {
    const name = error instanceof Error ? error.name : '';
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

/** AWS errors about the request itself. Any other error means that KMS is unavailable. */
const MEANINGS: Readonly<Record<string, () => RonError>> = {
  NotFoundException: noSuchKey,
  InvalidArnException: noSuchKey,
  DisabledException: noSuchKey,
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
