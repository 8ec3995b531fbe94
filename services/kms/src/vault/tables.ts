/**
 * The tables of the vault.
 *
 * | table | key | record |
 * | --- | --- | --- |
 * | `meta` | `anchor`, `audience_root` | the anchor (vault/anchor.ts); the root of the audience keys |
 * | `meta` | `cosigned` | the time of the last cosignature (vault/last-cosigned.ts) |
 * | `secrets` | handle | a private key of the backend `file`, sealed once more, and its nonce counter |
 * | `keys` | name | a key without its versions |
 * | `versions` | name, number | one version |
 * | `ops` | hash of tenant and op_id | the answer of an operation |
 * | `op_times` | tenant, time, key in `ops` | nothing; orders the operations of a tenant |
 * | `made` | as `ops` | the version that an operation made, until its answer is in `ops` |
 * | `tenants` | tenant, resource | how much of it the tenant holds |
 */
import { SECRETS as CUSTODY_SECRETS } from '@ron/custody';

export const META = 'meta';
export const SECRETS = CUSTODY_SECRETS;
export const KEYS = 'keys';
export const VERSIONS = 'versions';
export const OPS = 'ops';
export const OP_TIMES = 'op_times';
export const MADE = 'made';
export const TENANTS = 'tenants';

export const TABLES = [META, SECRETS, KEYS, VERSIONS, OPS, OP_TIMES, MADE, TENANTS] as const;

/** The records of `tenants` have one owner each, so that no owner overwrites another's count. */
export const heldKeys = (tenant: string): string => `${tenant}/keys`;
export const heldOps = (tenant: string): string => `${tenant}/ops`;
