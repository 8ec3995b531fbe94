/** The identity of an operation: its tenant and its id. */
import { hash } from 'node:crypto';

export const RETENTION_MS = 30 * 24 * 3600 * 1000;

/** The key of the operation in the store. */
export function opKey(tenant: string, op_id: string): string {
  return hash('sha256', `${tenant}\n${op_id}`, 'base64url');
}

/** The hash of a request, independent of the order of its members. */
export function requestHash(request: unknown): string {
  return hash('sha256', canonical(request), 'hex');
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  const sorted = members.toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${sorted.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(',')}}`;
}
