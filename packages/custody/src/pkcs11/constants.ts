/** The constants of PKCS #11 (version 2.40, and the Edwards curves of 3.0) that are used here, by their standard names. */

export const CKR_OK = 0;

/** Return values with a known name; others are shown as numbers. */
export const CKR = {
  HOST_MEMORY: 0x02,
  SLOT_ID_INVALID: 0x03,
  GENERAL_ERROR: 0x05,
  FUNCTION_FAILED: 0x06,
  ATTRIBUTE_TYPE_INVALID: 0x12,
  ATTRIBUTE_VALUE_INVALID: 0x13,
  DATA_LEN_RANGE: 0x21,
  DEVICE_ERROR: 0x30,
  DEVICE_MEMORY: 0x31,
  DEVICE_REMOVED: 0x32,
  FUNCTION_CANCELED: 0x50,
  FUNCTION_NOT_SUPPORTED: 0x54,
  KEY_HANDLE_INVALID: 0x60,
  MECHANISM_INVALID: 0x70,
  OBJECT_HANDLE_INVALID: 0x82,
  OPERATION_ACTIVE: 0x90,
  OPERATION_NOT_INITIALIZED: 0x91,
  PIN_INCORRECT: 0xa0,
  PIN_INVALID: 0xa1,
  PIN_LEN_RANGE: 0xa2,
  PIN_EXPIRED: 0xa3,
  PIN_LOCKED: 0xa4,
  SESSION_CLOSED: 0xb0,
  SESSION_COUNT: 0xb1,
  SESSION_HANDLE_INVALID: 0xb3,
  TEMPLATE_INCONSISTENT: 0xd1,
  TOKEN_NOT_PRESENT: 0xe0,
  TOKEN_NOT_RECOGNIZED: 0xe1,
  USER_ALREADY_LOGGED_IN: 0x100,
  USER_NOT_LOGGED_IN: 0x101,
  CRYPTOKI_NOT_INITIALIZED: 0x190,
  CRYPTOKI_ALREADY_INITIALIZED: 0x191,
} as const;

const NAMES = new Map<number, string>(Object.entries(CKR).map(([name, value]) => [value, `CKR_${name}`]));

export function nameOfResult(value: number): string {
  return NAMES.get(value) ?? `CKR 0x${value.toString(16)}`;
}

export const CKF = { OS_LOCKING_OK: 0x2, RW_SESSION: 0x2, SERIAL_SESSION: 0x4 } as const;
export const CKU_USER = 1;
export const CKS_RW_USER_FUNCTIONS = 3;

export const CKO = { PUBLIC_KEY: 2, PRIVATE_KEY: 3, SECRET_KEY: 4 } as const;
export const CKK = { RSA: 0x00, GENERIC_SECRET: 0x10 } as const;

export const CKA = {
  CLASS: 0x00,
  TOKEN: 0x01,
  PRIVATE: 0x02,
  LABEL: 0x03,
  KEY_TYPE: 0x100,
  ID: 0x102,
  SENSITIVE: 0x103,
  SIGN: 0x108,
  VERIFY: 0x10a,
  MODULUS_BITS: 0x121,
  PUBLIC_EXPONENT: 0x122,
  VALUE_LEN: 0x161,
  EXTRACTABLE: 0x162,
  EC_PARAMS: 0x180,
  EC_POINT: 0x181,
} as const;

export const CKM = {
  RSA_PKCS_KEY_PAIR_GEN: 0x0,
  SHA256_RSA_PKCS: 0x40,
  SHA256_HMAC: 0x251,
  GENERIC_SECRET_KEY_GEN: 0x350,
  EC_EDWARDS_KEY_PAIR_GEN: 0x1055,
  EDDSA: 0x1057,
} as const;
