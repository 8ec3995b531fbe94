export * from './address.ts';
export * from './scopes.ts';
export * from './services.ts';
export * from './storage.ts';
