export * from './access.ts';
export * from './address.ts';
export * from './kms.ts';
export * from './known-volumes.ts';
export * from './passport.ts';
export * from './scopes.ts';
export * from './services.ts';
export * from './storage.ts';
