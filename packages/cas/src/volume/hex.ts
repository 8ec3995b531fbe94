/** Ids and hashes as people read them. */
export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
