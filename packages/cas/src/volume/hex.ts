/** Formats ids and hashes for logs and errors. */
export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
