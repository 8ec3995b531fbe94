export * from './keys.ts';
export * from './reference.ts';
export * from './witness-server.ts';
