/**
 * Calls any PKCS #11 module through its function list.
 *
 * Contract: every call returns or throws a `CryptokiError` with the module's return value. Calls block, so this file runs in
 * dedicated threads only. Memory passed to a call belongs to the caller and outlives the call.
 * Bound: output buffers have fixed sizes; a module that needs more fails with `CKR_BUFFER_TOO_SMALL`.
 * Cancellation: native code cannot be interrupted.
 */
import { RonError } from '@ron/kernel';
// oxlint-disable-next-line ron/no-blocking-calls -- called in the threads of a BlockingPool only
import koffi from 'koffi';
import { CKF, CKR, CKR_OK, CKS_RW_USER_FUNCTIONS, nameOfResult } from './constants.ts';

export type Handle = bigint;

/** An attribute of a template. Numbers are encoded as CK_ULONG, booleans as CK_BBOOL. */
export type Attribute = readonly [type: number, value: Uint8Array | number | boolean];

export interface TokenInfo {
  readonly label: string;
  readonly manufacturer: string;
  readonly model: string;
  readonly serial: string;
  readonly hardware_version: string;
  readonly firmware_version: string;
}

export class CryptokiError extends Error {
  override readonly name = 'CryptokiError';
  readonly call: string;
  readonly result: number;

  constructor(call: string, result: number) {
    super(`${call}: ${nameOfResult(result)}`);
    this.call = call;
    this.result = result;
  }
}

const ULONG_BYTES = koffi.sizeof('ulong');
const ATTRIBUTE = koffi.struct({ type: 'ulong', value: 'void *', value_bytes: 'ulong' });
const MECHANISM = koffi.struct({ mechanism: 'ulong', parameter: 'void *', parameter_bytes: 'ulong' });

const U = 'ulong';
const P = 'void *';
const MECHANISM_IN = koffi.pointer(MECHANISM);
const TEMPLATE_IN = koffi.pointer(ATTRIBUTE);
const TEMPLATE_INOUT = koffi.inout(koffi.pointer(ATTRIBUTE));

/** Index in CK_FUNCTION_LIST, and arguments. All return CK_RV. */
const FUNCTIONS = {
  C_Initialize: [0, [P]],
  C_Finalize: [1, [P]],
  C_GetSlotList: [4, ['uint8', P, P]],
  C_GetTokenInfo: [6, [U, P]],
  C_GetMechanismList: [7, [U, P, P]],
  C_OpenSession: [12, [U, U, P, P, P]],
  C_CloseSession: [13, [U]],
  C_CloseAllSessions: [14, [U]],
  C_GetSessionInfo: [15, [U, P]],
  C_Login: [18, [U, U, P, U]],
  C_Logout: [19, [U]],
  C_DestroyObject: [22, [U, U]],
  C_GetAttributeValue: [24, [U, U, TEMPLATE_INOUT, U]],
  C_FindObjectsInit: [26, [U, TEMPLATE_IN, U]],
  C_FindObjects: [27, [U, P, U, P]],
  C_FindObjectsFinal: [28, [U]],
  C_SignInit: [42, [U, MECHANISM_IN, U]],
  C_Sign: [43, [U, P, U, P, P]],
  C_GenerateKey: [58, [U, MECHANISM_IN, TEMPLATE_IN, U, P]],
  C_GenerateKeyPair: [59, [U, MECHANISM_IN, TEMPLATE_IN, U, TEMPLATE_IN, U, P, P]],
} as const;

const FUNCTION_COUNT = 68;
/** The function list begins with a two-byte version, padded to pointer alignment. */
const FUNCTIONS_AT = 8;
const FOUND_MAX = 16;
const MECHANISMS_MAX = 1024;
const SLOTS_MAX = 256;

const NOTHING = new Uint8Array(1);

type Name = keyof typeof FUNCTIONS;

export class Cryptoki {
  readonly #functions: Record<Name, (...args: unknown[]) => number>;

  constructor(module: string) {
    // On Windows CK_ULONG has 4 bytes and structures are packed, so these layouts would be wrong.
    if (ULONG_BYTES !== 8) throw new RonError('unhealthy', 'tokens are supported on 64-bit Unix only');
    keepLoaded(module);
    const list: unknown[] = [null];
    const result = koffi.load(module).func('C_GetFunctionList', 'ulong', ['_Out_ void **'])(list) as number;
    if (result !== CKR_OK) throw new CryptokiError('C_GetFunctionList', result);
    const pointers = koffi.decode(list[0], FUNCTIONS_AT, koffi.array('void *', FUNCTION_COUNT)) as unknown[];
    const bound = Object.entries(FUNCTIONS).map(([name, [at, args]]) => {
      return [name, koffi.decode(pointers[at], koffi.proto('ulong', [...args])) as (...args: unknown[]) => number];
    });
    this.#functions = Object.fromEntries(bound) as Record<Name, (...args: unknown[]) => number>;
  }

  /** All threads of this process share one initialisation. Two threads must not call this concurrently. */
  initialize(): void {
    const args = Buffer.alloc(6 * ULONG_BYTES);
    args.writeUInt32LE(CKF.OS_LOCKING_OK, 4 * ULONG_BYTES);
    const result = this.#functions.C_Initialize(args);
    if (result !== CKR_OK && result !== CKR.CRYPTOKI_ALREADY_INITIALIZED) {
      throw new CryptokiError('C_Initialize', result);
    }
  }

  /** Reverts `initialize` for every thread of this process. No thread may be in a call. */
  finalize(): void {
    this.#call('C_Finalize', null);
  }

  slots(): Handle[] {
    // A module rescans for tokens when the count is requested, so request it first.
    const count = ulongs(1);
    this.#call('C_GetSlotList', 1, null, count);
    const slots = ulongs(SLOTS_MAX);
    count[0] = BigInt(SLOTS_MAX);
    this.#call('C_GetSlotList', 1, slots, count);
    return [...slots.subarray(0, Number(count[0]))];
  }

  tokenInfo(slot: Handle): TokenInfo {
    const info = Buffer.alloc(512);
    this.#call('C_GetTokenInfo', slot, info);
    const text = (at: number, bytes: number): string => info.toString('utf8', at, at + bytes).replace(/[\0 ]+$/, '');
    // The flags and ten more CK_ULONG are between the serial number and the versions.
    const versions_at = 96 + 11 * ULONG_BYTES;
    const version = (at: number): string => `${info[at]}.${info[at + 1]}`;
    return {
      label: text(0, 32),
      manufacturer: text(32, 32),
      model: text(64, 16),
      serial: text(80, 16),
      hardware_version: version(versions_at),
      firmware_version: version(versions_at + 2),
    };
  }

  mechanisms(slot: Handle): Set<number> {
    const count = ulongs(1, BigInt(MECHANISMS_MAX));
    const list = ulongs(MECHANISMS_MAX);
    this.#call('C_GetMechanismList', slot, list, count);
    return new Set(Array.from(list.subarray(0, Number(count[0])), Number));
  }

  openSession(slot: Handle): Handle {
    const session = ulongs(1);
    this.#call('C_OpenSession', slot, CKF.SERIAL_SESSION | CKF.RW_SESSION, null, null, session);
    return session[0] as Handle;
  }

  closeSession(session: Handle): void {
    this.#call('C_CloseSession', session);
  }

  closeAllSessions(slot: Handle): void {
    this.#call('C_CloseAllSessions', slot);
  }

  /** Whether a user is logged in. Throws if the session is dead. */
  isLoggedIn(session: Handle): boolean {
    const info = ulongs(4);
    this.#call('C_GetSessionInfo', session, info);
    return info[1] === BigInt(CKS_RW_USER_FUNCTIONS);
  }

  login(session: Handle, user: number, pin: string): void {
    const bytes = Buffer.from(pin);
    const result = this.#functions.C_Login(session, user, bytes, bytes.length);
    bytes.fill(0);
    // The login belongs to the process, so another session may have logged in first.
    if (result !== CKR_OK && result !== CKR.USER_ALREADY_LOGGED_IN) throw new CryptokiError('C_Login', result);
  }

  logout(session: Handle): void {
    this.#call('C_Logout', session);
  }

  find(session: Handle, attributes: readonly Attribute[]): Handle[] {
    this.#call('C_FindObjectsInit', session, template(attributes), attributes.length);
    const found = ulongs(FOUND_MAX);
    const count = ulongs(1);
    try {
      this.#call('C_FindObjects', session, found, FOUND_MAX, count);
    } finally {
      // Ignore the result: an earlier error takes precedence.
      this.#functions.C_FindObjectsFinal(session);
    }
    return [...found.subarray(0, Number(count[0]))];
  }

  /** Reads one attribute of at most `bytes_max` bytes. */
  attribute(session: Handle, object: Handle, type: number, bytes_max: number): Buffer {
    const value = Buffer.alloc(bytes_max);
    const asked = [{ type, value, value_bytes: bytes_max }];
    this.#call('C_GetAttributeValue', session, object, asked, 1);
    return value.subarray(0, Number(asked[0]?.value_bytes));
  }

  destroy(session: Handle, object: Handle): void {
    this.#call('C_DestroyObject', session, object);
  }

  generateKey(session: Handle, mechanism: number, attributes: readonly Attribute[]): Handle {
    const key = ulongs(1);
    this.#call('C_GenerateKey', session, mechanismOf(mechanism), template(attributes), attributes.length, key);
    return key[0] as Handle;
  }

  generateKeyPair(
    session: Handle,
    mechanism: number,
    publicPart: readonly Attribute[],
    privatePart: readonly Attribute[],
  ): { publicKey: Handle; privateKey: Handle } {
    const keys = [ulongs(1), ulongs(1)] as const;
    this.#call(
      'C_GenerateKeyPair',
      session,
      mechanismOf(mechanism),
      template(publicPart),
      publicPart.length,
      template(privatePart),
      privatePart.length,
      ...keys,
    );
    return { publicKey: keys[0][0] as Handle, privateKey: keys[1][0] as Handle };
  }

  sign(session: Handle, mechanism: number, key: Handle, data: Uint8Array, bytes_max: number): Buffer {
    this.#call('C_SignInit', session, mechanismOf(mechanism), key);
    const signature = Buffer.alloc(bytes_max);
    const length = ulongs(1, BigInt(bytes_max));
    // An empty array would become a null pointer, which modules refuse.
    this.#call('C_Sign', session, data.length === 0 ? NOTHING : data, data.length, signature, length);
    return signature.subarray(0, Number(length[0]));
  }

  #call(name: Name, ...args: unknown[]): void {
    const result = this.#functions[name](...args);
    if (result !== CKR_OK) throw new CryptokiError(name, result);
  }
}

/** RTLD_NOW and RTLD_NODELETE. */
const STAYS = process.platform === 'darwin' ? 0x82 : 0x1002;

/** Pins the library: otherwise it is unloaded with the thread that loaded it, while other threads are still in it. */
function keepLoaded(module: string): void {
  // If this fails, the regular load below reports the reason.
  koffi.load(null).func('dlopen', 'void *', ['str', 'int'])(module, STAYS);
}

/** CK_ULONG is 8 bytes wherever Node runs on a 64-bit Unix. */
function ulongs(count: number, first = 0n): BigUint64Array {
  const numbers = new BigUint64Array(count);
  numbers[0] = first;
  return numbers;
}

const mechanismOf = (mechanism: number): unknown[] => [{ mechanism, parameter: null, parameter_bytes: 0 }];

function template(attributes: readonly Attribute[]): unknown[] {
  return attributes.map(([type, value]) => {
    const bytes = bytesOf(value);
    return { type, value: bytes, value_bytes: bytes.length };
  });
}

function bytesOf(value: Uint8Array | number | boolean): Uint8Array {
  if (typeof value === 'boolean') return Buffer.from([value ? 1 : 0]);
  return typeof value === 'number' ? new Uint8Array(ulongs(1, BigInt(value)).buffer) : value;
}
