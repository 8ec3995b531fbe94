/**
 * A local server for the part of the AWS KMS protocol that `CloudBackend` uses: JSON 1.1 over HTTP, signed requests, the
 * service's error types. Its keys are real. It requires that requests are signed but does not verify the signature.
 */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from '@ron/kernel/http';
import { assert, sched } from '@ron/kernel';

interface CloudKey {
  readonly secret: Buffer;
  readonly usage: string;
  state: 'Enabled' | 'Disabled' | 'PendingDeletion';
  denied: boolean;
}

const randomBytes = (count: number): Buffer => Buffer.from(sched.randomBytes(count));

type Fields = Record<string, unknown>;

/** An error response of the service: a type and a message with status 400. */
class ServiceError extends Error {
  readonly type: string;
  constructor(type: string) {
    super(type);
    this.type = type;
  }
}

export class KmsServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #keys = new Map<string, CloudKey>();
  /** Targets and bodies in the order of arrival. */
  readonly requests: string[] = [];
  readonly bodies: string[] = [];
  /** The fault injected into requests. `throttled` and `broken` respond with an error; `silent` never responds. */
  fault: 'none' | 'throttled' | 'broken' | 'silent' = 'none';
  /** Whether `ListKeys` is refused, as a policy for single keys does. */
  deniesListing = false;

  private constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async start(port = 0): Promise<KmsServer> {
    const server = new KmsServer();
    server.#server.listen(port, '127.0.0.1');
    await once(server.#server, 'listening');
    return server;
  }

  get endpoint(): string {
    const address = this.#server.address();
    assert(address !== null && typeof address === 'object', 'the server listens');
    return `http://127.0.0.1:${address.port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const target = String(request.headers['x-amz-target'] ?? '');
    const body = Buffer.concat(pieces).toString();
    this.requests.push(target);
    this.bodies.push(body);
    if (this.fault === 'silent') return;
    if (this.fault === 'broken') return reply(response, 500, { __type: 'KMSInternalException' });
    try {
      if (this.fault === 'throttled') throw new ServiceError('ThrottlingException');
      if (request.headers.authorization?.startsWith('AWS4-HMAC-SHA256 Credential=') !== true) {
        throw new ServiceError('MissingAuthenticationTokenException');
      }
      reply(response, 200, this.#act(target, JSON.parse(body) as Fields));
    } catch (error) {
      const type = error instanceof ServiceError ? error.type : 'ValidationException';
      reply(response, 400, { __type: type, message: type });
    }
  }

  #act(target: string, body: Fields): Fields {
    switch (target) {
      case 'TrentService.ListKeys':
        if (this.deniesListing) throw new ServiceError('AccessDeniedException');
        return { Keys: [...this.#keys.keys()].slice(0, 1).map((KeyId) => ({ KeyId })), Truncated: false };
      case 'TrentService.CreateKey': {
        const KeyId = randomBytes(16).toString('hex');
        this.#keys.set(KeyId, {
          secret: randomBytes(32),
          usage: String(body.KeyUsage),
          state: 'Enabled',
          denied: false,
        });
        return { KeyMetadata: { KeyId, KeyState: 'Enabled' } };
      }
      case 'TrentService.DescribeKey':
        return { KeyMetadata: { KeyId: body.KeyId, KeyState: this.#key(body).state } };
      case 'TrentService.ScheduleKeyDeletion':
        this.#usable(body).state = 'PendingDeletion';
        return { KeyId: body.KeyId };
      case 'TrentService.GenerateDataKey': {
        const plaintext = randomBytes(32);
        const blob = seal(this.#usable(body, 'ENCRYPT_DECRYPT').secret, plaintext, context(body));
        return { KeyId: body.KeyId, Plaintext: plaintext.toString('base64'), CiphertextBlob: blob.toString('base64') };
      }
      case 'TrentService.Decrypt': {
        const { secret } = this.#usable(body, 'ENCRYPT_DECRYPT');
        const plaintext = open(secret, Buffer.from(String(body.CiphertextBlob), 'base64'), context(body));
        return { KeyId: body.KeyId, Plaintext: plaintext.toString('base64') };
      }
      case 'TrentService.GenerateMac': {
        const { secret } = this.#usable(body, 'GENERATE_VERIFY_MAC');
        const mac = createHmac('sha256', secret)
          .update(Buffer.from(String(body.Message), 'base64'))
          .digest('base64');
        return { KeyId: body.KeyId, Mac: mac, MacAlgorithm: body.MacAlgorithm };
      }
      default:
        throw new ServiceError('UnknownOperationException');
    }
  }

  /** Changes a key as an administrator of the account would. `key` is the name in the backend. */
  set(key: string, change: Partial<Pick<CloudKey, 'state' | 'denied'>>): void {
    Object.assign(this.#keys.get(key.slice(key.indexOf('.') + 1))!, change);
  }

  #key(body: Fields): CloudKey {
    const key = this.#keys.get(String(body.KeyId));
    if (key === undefined) throw new ServiceError('NotFoundException');
    if (key.denied) throw new ServiceError('AccessDeniedException');
    return key;
  }

  #usable(body: Fields, usage?: string): CloudKey {
    const key = this.#key(body);
    if (key.state === 'Disabled') throw new ServiceError('DisabledException');
    if (key.state !== 'Enabled') throw new ServiceError('KMSInvalidStateException');
    if (usage !== undefined && key.usage !== usage) throw new ServiceError('InvalidKeyUsageException');
    return key;
  }
}

const context = (body: Fields): Buffer => Buffer.from(JSON.stringify(body.EncryptionContext ?? {}));

function seal(secret: Buffer, plaintext: Buffer, aad: Buffer): Buffer {
  const nonce = randomBytes(12);
  const cipher = createCipheriv('aes-256-gcm', secret, nonce).setAAD(aad);
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
}

function open(secret: Buffer, blob: Buffer, aad: Buffer): Buffer {
  if (blob.length < 28) throw new ServiceError('InvalidCiphertextException');
  const decipher = createDecipheriv('aes-256-gcm', secret, blob.subarray(0, 12)).setAAD(aad);
  decipher.setAuthTag(blob.subarray(-16));
  try {
    return Buffer.concat([decipher.update(blob.subarray(12, -16)), decipher.final()]);
  } catch {
    throw new ServiceError('InvalidCiphertextException');
  }
}

function reply(response: ServerResponse, status: number, body: Fields): void {
  response.writeHead(status, { 'content-type': 'application/x-amz-json-1.1' }).end(JSON.stringify(body));
}
