export * from './keys.ts';
export * from './reference.ts';
