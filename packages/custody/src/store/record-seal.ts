/** How a record is sealed: for one store, one table and one key, so that it does not open elsewhere. */
export function recordContext(id: string, table: string, key: string): Uint8Array {
  return Buffer.from(`ron-store/v1\n${id}\n${table}\n${key}`);
}
