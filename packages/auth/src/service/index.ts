export * from './auth-keys.ts';
export * from './kms-deriver.ts';
export * from './revocation-watch.ts';
export * from './sealed-cache.ts';
export * from './service-auth.ts';
