export * from './cache.ts';
