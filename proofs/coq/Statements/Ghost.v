(** Section 3: Ghost is the inner product of the gradients of the weights.

    A sample's loss is a function f of the pre-activation that the weights act on; g is its gradient there.
    Whatever follows the pre-activation is in f: activations, skip connections, heads. That the gradients with
    respect to the weights exist is part of what is concluded; only where a matrix has several uses, `sharing`
    asks that f is differentiable in all of them together, without which the gradient need not exist. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Gradients.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** One weight matrix, used once. *)
(* Implements: ghost-pre-activation *)
Definition pre_activation := forall (R : realFieldType) p q (W : 'M[R]_(p, q)) (az aj : 'cV_q) fz fj
    (gz gj : 'cV_p),
  (* meaning *) gradient fz (W *m az) gz ->
  (* meaning *) gradient fj (W *m aj) gj ->
  [/\ gradient (fun X => fz (X *m az)) W (gz *m az^T), gradient (fun X => fj (X *m aj)) W (gj *m aj^T)
    & forall Gz Gj,
      (* $s = Wa$ is the only use of $W$ on a sample *) gradient (fun X => fz (X *m az)) W Gz ->
      (* $s = Wa$ is the only use of $W$ on a sample *) gradient (fun X => fj (X *m aj)) W Gj ->
      dot Gz Gj = dot az aj * dot gz gj].

(** All layers and all validation samples: the gradient inner product of Eq. 2, over the weights, is Eq. 3. *)
(* Implements: gradient1 *)
Definition ghost_influence := forall (R : realFieldType) d n L (W : forall l, 'M[R]_(d l, d l.-1))
    (V : 'I_n -> trace R d) (j : trace R d) (fz : 'I_n -> forall l, 'cV_(d l) -> R)
    (fj : forall l, 'cV_(d l) -> R),
  (* $s$ is the pre-activation *)
  (forall l, (0 < l <= L)%N -> (forall z, gradient (fz z l) (W l *m act (V z) l.-1) (grad (V z) l))
                               /\ gradient (fj l) (W l *m act j l.-1) (grad j l)) ->
  let of_weights Gz Gj := forall l, (* meaning *) (0 < l <= L)%N ->
    (forall z, gradient (fun X => fz z l (X *m act (V z) l.-1)) (W l) (Gz z l))
    /\ gradient (fun X => fj l (X *m act j l.-1)) (W l) (Gj l) in
  of_weights (fun z l => grad (V z) l *m (act (V z) l.-1)^T) (fun l => grad j l *m (act j l.-1)^T) /\
  (forall (Gz : 'I_n -> forall l, 'M_(d l, d l.-1)) (Gj : forall l, 'M_(d l, d l.-1)),
    (* only weight matrices are scored, each used once per sample *) of_weights Gz Gj ->
    influence_ghost L V j = - (\sum_z \sum_(1 <= l < L.+1) dot (Gz z l) (Gj l))).

(* The loss as a function of a weight matrix and a bias, side by side. *)
Definition biased (R : ringType) p q (f : 'cV[R]_p -> R) (a : 'cV_q) (X : 'M_(p, q + 1)) :=
  f (lsubmx X *m a + rsubmx X).

(** A weight matrix with a bias. *)
(* Implements: ghost-bias *)
Definition bias := forall (R : realFieldType) p q (W : 'M[R]_(p, q)) (b : 'cV_p) (az aj : 'cV_q) fz fj
    (gz gj : 'cV_p),
  (* meaning *) gradient fz (W *m az + b) gz ->
  (* meaning *) gradient fj (W *m aj + b) gj ->
  [/\ exists Gz, gradient (biased fz az) (row_mx W b) Gz, exists Gj, gradient (biased fj aj) (row_mx W b) Gj
    & forall Gz Gj,
      (* $s = Wa + b$ is the only use of $W$ and of $b$ on a sample *)
      gradient (biased fz az) (row_mx W b) Gz ->
      (* $s = Wa + b$ is the only use of $W$ and of $b$ on a sample *)
      gradient (biased fj aj) (row_mx W b) Gj ->
      dot Gz Gj = (dot az aj + 1) * dot gz gj].

(** One weight matrix at many positions: the columns of A are the inputs, those of G the output gradients. *)
(* Implements: ghost-positions *)
Definition positions := forall (R : realFieldType) p q m n (W : 'M[R]_(p, q)) (Az : 'M_(q, m))
    (Aj : 'M_(q, n)) fz fj
    (Gz : 'M_(p, m)) (Gj : 'M_(p, n)),
  (* meaning *) gradient fz (W *m Az) Gz ->
  (* meaning *) gradient fj (W *m Aj) Gj ->
  [/\ gradient (fun X => fz (X *m Az)) W (Gz *m Az^T), gradient (fun X => fj (X *m Aj)) W (Gj *m Aj^T)
    & forall Dz Dj,
      (* $s_t = W a_t$ are all uses of $W$ on a sample *) gradient (fun X => fz (X *m Az)) W Dz ->
      (* $s_t = W a_t$ are all uses of $W$ on a sample *) gradient (fun X => fj (X *m Aj)) W Dj ->
      dot Dz Dj = \sum_t \sum_u dot (col t Az) (col u Aj) * dot (col t Gz) (col u Gj)].

(* The loss as a function of u copies of one matrix, the rows of a matrix; all copies equal; copy k alone
   changed. *)
Definition tied (R : ringType) u p q (X : 'M[R]_(p, q)) : 'M_(u, p * q) := \matrix_(k < u) mxvec X.
Definition changed (R : ringType) u p q (W : 'M[R]_(p, q)) (k : 'I_u) X : 'M_(u, p * q) :=
  \matrix_(k' < u) (if k' == k then mxvec X else mxvec W).

(* Copy k is used as s = W a_k, whatever its place in the network: earlier uses change a_k, later ones see
   s. *)
Definition uses (R : realFieldType) u p q (W : 'M[R]_(p, q)) (f : 'M_(u, p * q) -> R) (a : 'I_u -> 'cV_q) g :=
  (exists H, gradient f (tied u W) H) /\
  (forall k, exists2 h, gradient h (W *m a k) (g k) & forall X, f (changed W k X) = h (X *m a k)).

(** One weight matrix in several places: all pairs of uses. The loss is differentiable in the copies
    together. *)
(* Implements: ghost-sharing *)
Definition sharing := forall (R : realFieldType) p q m n (W : 'M[R]_(p, q)) fz fj
    (az : 'I_m -> 'cV_q) (aj : 'I_n -> 'cV_q) (gz : 'I_m -> 'cV_p) (gj : 'I_n -> 'cV_p),
  (* the listed uses are all uses of $W$ on a sample *) (uses W fz az gz /\ uses W fj aj gj) ->
  [/\ gradient (fun X => fz (tied m X)) W (\sum_l gz l *m (az l)^T),
      gradient (fun X => fj (tied n X)) W (\sum_k gj k *m (aj k)^T)
    & forall Gz Gj,
      (* meaning *) gradient (fun X => fz (tied m X)) W Gz ->
      (* meaning *) gradient (fun X => fj (tied n X)) W Gj ->
      dot Gz Gj = \sum_l \sum_k dot (az l) (aj k) * dot (gz l) (gj k)].

(** An embedding table, of which position t reads row i t. *)
(* Implements: embedding-gradient *)
Definition embedding := forall (R : realFieldType) v p m n (E : 'M[R]_(v, p)) (iz : 'I_m -> 'I_v)
    (ij : 'I_n -> 'I_v)
    fz fj (Gz : 'M_(m, p)) (Gj : 'M_(n, p)),
  (* meaning *) gradient fz (rowsub iz E) Gz ->
  (* meaning *) gradient fj (rowsub ij E) Gj ->
  [/\ exists Dz, gradient (fun X => fz (rowsub iz X)) E Dz,
      exists Dj, gradient (fun X => fj (rowsub ij X)) E Dj
    & forall Dz Dj,
      (* reads are the only uses of the table *) gradient (fun X => fz (rowsub iz X)) E Dz ->
      (* reads are the only uses of the table *) gradient (fun X => fj (rowsub ij X)) E Dj ->
      dot Dz Dj = \sum_t \sum_u (iz t == ij u)%:R * dot (row t Gz) (row u Gj)].

(* The outputs of a gain c and an offset o. *)
Definition scaled (R : ringType) p n (x : 'M[R]_(p, n)) (c o : 'cV_p) : 'M_(p, n) :=
  \matrix_(i, t) (c i 0 * x i t + o i 0).

(** A gain and an offset, y_t = gamma x_t + b entry by entry; the columns of x and of G are the positions. *)
(* Implements: gain-gradient *)
Definition gain := forall (R : realFieldType) p n (x : 'M[R]_(p, n)) (gamma b : 'cV_p) f (G : 'M_(p, n)),
  (* meaning *) gradient f (scaled x gamma b) G ->
  gradient (fun c => f (scaled x c b)) gamma (\col_i \sum_t G i t * x i t) /\
  gradient (fun o => f (scaled x gamma o)) b (\col_i \sum_t G i t).

(** LAI is the inner product of the gradients of virtual readouts: s^(L) + U^(l) a^(l-1) in place of s^(L),
    for every layer l, at U = 0. *)
(* Implements: virtual-readout *)
Definition virtual_readout := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) (j : trace R d)
    (sz : 'I_n -> 'cV_(d L)) sj (fz : 'I_n -> 'cV_(d L) -> R) fj,
  (* meaning *) (forall z, gradient (fz z) (sz z) (grad (V z) L)) ->
  (* meaning *) gradient fj sj (grad j L) ->
  let of_readouts Gz Gj := forall l, (* meaning *) (0 < l <= L)%N ->
    (forall z, gradient (fun U => fz z (sz z + U *m act (V z) l.-1)) 0 (Gz z l))
    /\ gradient (fun U => fj (sj + U *m act j l.-1)) 0 (Gj l) in
  of_readouts (fun z l => grad (V z) L *m (act (V z) l.-1)^T) (fun l => grad j L *m (act j l.-1)^T) /\
  (forall (Gz : 'I_n -> forall l, 'M_(d L, d l.-1)) (Gj : forall l, 'M_(d L, d l.-1)),
    (* the readouts are added where the last layer's output is, at $U = 0$ *) of_readouts Gz Gj ->
    lai L V j = \sum_z \sum_(1 <= l < L.+1) dot (Gz z l) (Gj l)).

(** Scores from a validation summary: G_V, in one block for each layer's inputs. *)
(* Implements: aggregation *)
Definition aggregation := forall (R : comRingType) d n L (V : 'I_n -> trace R d) (j : trace R d),
  let G l := \sum_z grad (V z) L *m (act (V z) l.-1)^T in
  lai L V j = \sum_(1 <= l < L.+1) dot (grad j L) (G l *m act j l.-1).
