export * from './manifest.ts';
export * from './record-types.ts';
