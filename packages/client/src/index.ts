export * from './answer-error.ts';
export * from './body.ts';
export * from './kms-client.ts';
export * from './object-hasher.ts';
export * from './passport-client.ts';
export * from './progress.ts';
export * from './receipt.ts';
export * from './storage-client.ts';
export { TRANSPORT_DEFAULTS, type TransportInit } from './transport.ts';
