(** Proofs of Statements/Moments.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws Products Noise Moments.
From LAI Require Import Vectors Variance Products Noise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Functions of different members of an independent family: the mean of the product is the product of the
   means. *)
Section Independent.
Variables (R : realFieldType) (W : finType) (P : law R W) (I : finType) (T : I -> eqType)
  (X : forall i, W -> T i).
Hypothesis ind : independent P X.
Definition depends (S : Type) (A : I -> bool) (F : W -> S) := forall w w',
    (forall i, A i -> X i w = X i w') -> F w = F w'.
Definition same (A : pred I) w w' := [forall i, A i ==> (X i w == X i w')].
Lemma samex A w : same A w w. Proof. by apply/forallP => i; apply/implyP. Qed.
Lemma sameP (A : pred I) w w' : reflect (forall i, A i -> X i w = X i w') (same A w w').
Proof.
apply: (iffP forallP) => h i; first by move=> Ai; have /implyP /(_ Ai) /eqP := h i.
by apply/implyP => Ai; apply/eqP/h.
Qed.
Definition size A w : R := \sum_w' (same A w w')%:R.
Lemma size_neq0 A w : size A w != 0.
Proof.
rewrite gt_eqF // /size (bigD1 w) //= samex ltr_paddr ?ltr01 //.
by apply: sumr_ge0 => w' _; rewrite ler0n.
Qed.
Lemma decompose A F : depends A F ->
  forall w, F w = \sum_w' F w' / size A w' * \prod_i (if A i then (X i w == X i w')%:R else 1).
Proof.
move=> hF w.
have prodE w' : \prod_i (if A i then (X i w == X i w')%:R else 1) = (same A w w')%:R :> R.
  case: (boolP (same A w w')) => [/sameP h|].
    by apply: big1 => i _; case: ifP => // Ai; rewrite h ?eqxx.
  rewrite negb_forall => /existsP [i]; rewrite negb_imply => /andP [Ai /negPf ne].
  by rewrite (bigD1 i) //= Ai ne mul0r.
rewrite (eq_bigr (fun w' => F w / size A w * (same A w w')%:R)) => [|w' _].
  by rewrite -mulr_sumr -/(size A w) divfK ?size_neq0.
rewrite prodE; case: (boolP (same A w w')) => [/sameP h|_]; last by rewrite !mulr0.
rewrite (hF _ _ h); congr (_ / _ * _); apply: eq_bigr => w'' _; congr (nat_of_bool _)%:R.
by apply/sameP/sameP => h' i Ai; rewrite -?h' ?h // -?h // h'.
Qed.
Lemma mean_depends A F G : depends A F -> depends (predC A) G ->
  mean P (fun w => F w * G w) = mean P F * mean P G.
Proof.
move=> hF hG; pose pick (B : pred I) v i w : R := if B i then (X i w == X i v)%:R else 1.
have meanE B H : depends B H -> mean P H = \sum_v H v / size B v * \prod_i mean P (pick B v i).
  move=> hH; rewrite (eq_mean P (decompose hH)) mean_sum; apply: eq_bigr => v _.
  by rewrite meanZ; congr (_ * _); exact: (ind (fun i x => if B i then (x == X i v)%:R else 1)).
rewrite (meanE _ _ hF) (meanE _ _ hG) mulr_suml.
rewrite (eq_mean P (Y := fun w => \sum_v \sum_v' (F v / size A v * (G v' / size (predC A) v')) *
    \prod_i (pick A v i w * pick (predC A) v' i w))) => [|w]; last first.
  rewrite {1}(decompose hF) {1}(decompose hG) mulr_suml; apply: eq_bigr => v _; rewrite mulr_sumr.
  by apply: eq_bigr => v' _; rewrite big_split /= mulrACA.
rewrite mean_sum; apply: eq_bigr => v _; rewrite mean_sum mulr_sumr; apply: eq_bigr => v' _.
rewrite meanZ [RHS]mulrACA; congr (_ * _); rewrite -big_split /=.
rewrite (eq_mean P (Y := fun w => \prod_i (if A i then (X i w == X i v)%:R else (X i w == X i v')%:R))) =>
  [|w].
  rewrite (ind (fun i x => if A i then (x == X i v)%:R else (x == X i v')%:R)); apply: eq_bigr => i _.
  rewrite /pick /=; case: (A i) => /=; first by rewrite mean_const mulr1.
  by rewrite mean_const mul1r.
by apply: eq_bigr => i _; rewrite /pick /=; case: (A i); rewrite /= ?mulr1 ?mul1r.
Qed.
End Independent.

(* X and Y are independent of each other. *)
Definition free (R : realFieldType) (W : finType) (P : law R W) S T (X : W -> S) (Y : W -> T) :=
  forall (f : S -> R) (g : T -> R), mean P (fun w => f (X w) * g (Y w))
    = mean P (fun w => f (X w)) * mean P (fun w => g (Y w)).

Section Free.
Variables (R : realFieldType) (W : finType) (P : law R W).
Lemma depends_free (I : finType) (T : I -> eqType) (X : forall i, W -> T i) (A : pred I) S U (Y : W -> S)
  (Z : W -> U) :
  independent P X -> depends X A Y -> depends X (predC A) Z -> free P Y Z.
Proof.
by move=> ind hY hZ f g; apply: (mean_depends ind (A := A)) => w w' h; [rewrite (hY w w')|rewrite (hZ w w')].
Qed.

Lemma averageE m n (X : W -> 'M[R]_(m, n)) i k : average P X i k = mean P (fun w => X w i k).
Proof. by rewrite /average summxE; apply: eq_bigr => w _; rewrite mxE. Qed.
Lemma free_dot S T (X : W -> S) (Y : W -> T) : free P X Y -> forall m n (f : S -> 'M[R]_(m, n))
  (g : T -> 'M[R]_(m, n)),
  mean P (fun w => dot (f (X w)) (g (Y w))) = dot (average P (fun w => f (X w)))
    (average P (fun w => g (Y w))).
Proof.
move=> h m n f g; rewrite mean_sum; apply: eq_bigr => i _; rewrite mean_sum; apply: eq_bigr => k _.
by rewrite !averageE (h (fun x => f x i k) (fun y => g y i k)).
Qed.
Lemma average_mull m n p (A : 'M[R]_(m, n)) (X : W -> 'M[R]_(n, p)) : average P (fun w => A *m X w)
  = A *m average P X.
Proof. by rewrite /average mulmx_sumr; apply: eq_bigr => w _; rewrite -scalemxAr. Qed.
End Free.

Section Columns.
Variables (R : comRingType).
(* A gate's similarity, unit by unit. *)
Lemma dot_columns m n (M : 'M[R]_(m, n)) (p r : 'rV[R]_n) (g h : 'cV[R]_m) :
  dot (diag_mx p *m M^T *m g) (diag_mx r *m M^T *m h)
    = \sum_i p 0 i * r 0 i * (dot (col i M) g * dot (col i M) h).
Proof.
have entry (q : 'rV[R]_n) (x : 'cV[R]_m) i : (diag_mx q *m M^T *m x) i 0 = q 0 i * dot (col i M) x.
  rewrite -mulmxA mul_diag_mx mxE /dot [(M^T *m x) i 0]mxE; congr (_ * _); apply: eq_bigr => k _.
  by rewrite big_ord1 !mxE.
by rewrite /dot; apply: eq_bigr => i _; rewrite big_ord1 !entry mulrACA.
Qed.
Lemma dot_square m (c g h : 'cV[R]_m) : dot c g * dot c h = dot (g *m h^T) (c *m c^T).
Proof. by rewrite dot_outer mulrC (dotC h) (dotC g). Qed.
Lemma dot_mxscalar m (g h : 'cV[R]_m) x : dot (g *m h^T) x%:M = x * dot g h.
Proof. by rewrite dot_mulr trmxK mul_scalar_mx dotZr. Qed.
End Columns.

Theorem gate_corrected : Statements.Moments.gate_corrected.
Proof.
move=> R W P d n L M a aj g gj p pj q last lastj V j chain [given [norms directions ind]] corrected.
have last_only z k l : (l + k = L)%N -> depends (T := fun t : 'I_L => [eqType of 'M[R]_(d t.+1, d t)])
  (fun t w => M w t)
    (fun t : 'I_L => l <= t)%N (fun w => (g w z l, gj w l)).
  elim: k l => [|k IH] l lL w w' h.
    by move: lL; rewrite addn0 => e; subst l; have [gw hw] := given w; have [gw' hw'] := given w';
      rewrite gw hw gw' hw'.
  have lt : (l < L)%N by rewrite -lL -addSnnS leq_addr.
  have [cw cjw] := chain w; have [cw' cjw'] := chain w'.
  have /= -> := cw z l lt; have /= -> := cjw l lt; have /= -> := cw' z l lt; have /= -> := cjw' l lt.
  have := IH l.+1 _ w w' (fun t lt => h t (ltnW lt)); rewrite addSnnS => /(_ lL) [-> ->].
  by have /= -> := h (Ordinal lt) (leqnn l).
have similar z k l : (l + k = L)%N ->
    mean P (fun w => dot (g w z l) (gj w l)) = dot (last z) lastj * \prod_(l <= t < L) gate_factor q (p z) pj
      t.
  elim: k l => [|k IH] l lL.
    move: lL; rewrite addn0 => e; subst l; rewrite big_geq // mulr1 -[RHS](mean_const P); apply: eq_mean => w.
    by have [-> ->] := given w.
  have lt : (l < L)%N by rewrite -lL -addSnnS leq_addr.
  have lL' : (l.+1 + k = L)%N by rewrite addSnnS.
  rewrite (eq_mean P (Y := fun w => \sum_i (p z l 0 i * pj l 0 i) *
      dot (g w z l.+1 *m (gj w l.+1)^T) (col i (M w l) *m (col i (M w l))^T))) => [|w]; last first.
    have [cw cjw] := chain w; have /= -> := cw z l lt; have /= -> := cjw l lt.
    by rewrite dot_columns; apply: eq_bigr => i _; rewrite dot_square.
  have fr : free P (fun w => (g w z l.+1, gj w l.+1)) (fun w => M w l).
    apply: (depends_free ind (last_only z k l.+1 lL')) => w w' h.
    by apply: (h (Ordinal lt)); rewrite /= ltnn.
  rewrite mean_sum (eq_bigr (fun i => (q l i * p z l 0 i * pj l 0 i) / (d l.+1)%:R *
      mean P (fun w => dot (g w z l.+1) (gj w l.+1)))) => [|i _]; last first.
    rewrite meanZ (free_dot fr (fun x => x.1 *m x.2^T) (fun m => col i m *m (col i m)^T)) directions //=.
    rewrite -(mean_dotl P) (eq_mean P (fun w => dot_mxscalar _ _ _)) meanZ.
    by move: (mean _ _) (_%:R^-1) => x y; ring.
  rewrite -mulr_suml -mulr_suml (IH l.+1) // [in RHS]big_ltn // /gate_factor.
  by move: (\prod_(_ <= _ < _) _) => x; rewrite mulrCA.
have one z : mean P (fun w => \sum_(1 <= l < L.+1) alpha (V w z) (j w) l * beta (V w z) (j w) l)
  = corrected z.
  rewrite mean_sum /corrected mulr_sumr; apply: eq_big_nat => l /andP [_ lL].
  by rewrite /alpha /beta /= meanZ (similar z (L - l)%N) ?subnKC // mulrCA.
by split=> //; rewrite /ghost mean_sum; apply: eq_bigr => z _; exact: one.
Qed.

(* One sample's gradient on its way down: h m is m layers below the last, u m its mean. *)
Section Lowered.
Variables (R : realFieldType) (W : finType) (P : law R W) (d : nat -> nat).
Variables (B : forall k, 'M[R]_(d k.+1, d k)) (D : W -> forall k, 'M[R]_(d k.+1, d k)) (g : 'cV[R]_(d 0%N))
  (k : nat).
Local Notation h m := (lowered B D m g).
Local Notation u m := (operator B m *m g).
Hypothesis fresh : forall m, (m < k)%N -> free P (h m) (D ^~ m).
Hypothesis centred : forall t, average P (D ^~ t) = 0.
Lemma loweredS m w : h m.+1 w = B m *m h m w + D w m *m h m w.
Proof. by rewrite /lowered operatorS -mulmxA /plus mulmxDl. Qed.
Lemma average_noise m : (m < k)%N -> average P (fun w => D w m *m h m w) = 0.
Proof.
move=> mk; apply/matrixP => i j; rewrite averageE mxE.
rewrite (eq_mean P (Y := fun w => \sum_p h m w p j * D w m i p)) => [|w]; last first.
  by rewrite mxE; apply: eq_bigr => p _; rewrite mulrC.
rewrite mean_sum big1 // => p _; rewrite (fresh mk (fun x => x p j) (fun x => x i p)).
by rewrite -(averageE P (D ^~ m)) centred mxE mulr0.
Qed.
Lemma average_lowered m : (m <= k)%N -> average P (h m) = u m.
Proof.
elim: m => [|m IH] mk; first by rewrite (eq_average _ (Y := fun=> u 0)) ?average_const // => w;
  rewrite /lowered !operator0.
rewrite (eq_average _ (loweredS m)) averageD average_noise // addr0 average_mull IH ?(ltnW mk) //.
by rewrite operatorS mulmxA.
Qed.
(* The noise that a layer adds has nothing to do with what comes from above. *)
Lemma mean_cross m (f : 'cV[R]_(d m) -> 'cV[R]_(d m.+1)) :
  (m < k)%N -> mean P (fun w => dot (f (h m w)) (D w m *m h m w)) = 0.
Proof.
move=> mk; rewrite (eq_mean P (Y := fun w => dot (f (h m w) *m (h m w)^T) (D w m))) => [|w]; last first.
  by rewrite dot_mulr trmxK.
by rewrite (free_dot (fresh mk) (fun x => f x *m x^T) id) centred dot0r.
Qed.
Lemma mean_noise m : (m < k)%N -> mean P (fun w => dot (D w m *m h m w) (D w m *m h m w))
  = mean P (fun w => dot (h m w) (energy P D m *m h m w)).
Proof.
move=> mk; pose G x := dot (average P (fun w => h m w *m (h m w)^T)) x.
rewrite (eq_mean P (Y := fun w => dot (h m w *m (h m w)^T) ((D w m)^T *m D w m))) => [|w]; last first.
  by rewrite dot_mull [RHS]dot_mulr trmxK mulmxA.
rewrite (free_dot (fresh mk) (fun x => x *m x^T) (fun x => x^T *m x)) -mean_dotl; apply: eq_mean => w.
by rewrite dot_mulr trmxK.
Qed.
Definition total m := mean P (fun w => dot (h m w) (h m w)).
Definition spread m := mean P (fun w => dot (h m w - u m) (h m w - u m)).
Lemma totalS m : (m < k)%N -> total m.+1 = mean P (fun w => dot (B m *m h m w) (B m *m h m w))
  + mean P (fun w => dot (h m w) (energy P D m *m h m w)).
Proof.
move=> mk; rewrite -mean_noise // -mean_add -[RHS]addr0 -(mulr0 2%:R) -(mean_cross (fun x => B m *m x) mk)
  -meanZ -mean_add.
apply: eq_mean => w; rewrite loweredS dotDl !dotDr (dotC (D w m *m _) (B m *m _)).
by move: (dot _ _) (dot _ _) (dot _ _) => x y z; ring.
Qed.
Lemma spreadS m : (m < k)%N -> spread m.+1
  = mean P (fun w => dot (B m *m (h m w - u m)) (B m *m (h m w - u m)))
  + mean P (fun w => dot (h m w) (energy P D m *m h m w)).
Proof.
move=> mk; rewrite -mean_noise // -mean_add -[RHS]addr0 -(mulr0 2%:R)
  -(mean_cross (fun x => B m *m (x - u m)) mk) -meanZ -mean_add.
apply: eq_mean => w; have -> : h m.+1 w - u m.+1 = B m *m (h m w - u m) + D w m *m h m w.
  by rewrite loweredS operatorS mulmxBr -mulmxA addrAC.
rewrite dotDl !dotDr (dotC (D w m *m _) (B m *m _)).
by move: (dot _ _) (dot _ _) (dot _ _) => x y z; ring.
Qed.
End Lowered.

(* What of two random vectors that are independent of each other their similarity has. *)
Section Pair.
Variables (R : realFieldType) (W : finType) (P : law R W) (n : nat) (X Y : W -> 'cV[R]_n).
Hypothesis apart : free P X Y.
Lemma second_moment (Z : W -> 'cV[R]_n) :
  average P (fun w => Z w *m (Z w)^T) = average P Z *m (average P Z)^T + covariance P Z.
Proof.
set u := average P Z; have zero : average P (rest P Z) = 0 by exact: average_rest.
have left (A : 'cV[R]_n) : average P (fun w => rest P Z w *m A^T) = 0.
  rewrite (eq_average _ (Y := fun w => (A *m (rest P Z w)^T)^T)) => [|w]; last by rewrite trmx_mul trmxK.
  apply/matrixP => i j; rewrite averageE mxE (eq_mean P (Y := fun w => A j 0 * rest P Z w i 0)) => [|w].
    by rewrite meanZ -averageE zero mxE mulr0.
  by rewrite !mxE big_ord1 !mxE.
have right (A : 'cV[R]_n) : average P (fun w => A *m (rest P Z w)^T) = 0.
  apply/matrixP => i j; rewrite averageE mxE (eq_mean P (Y := fun w => A i 0 * rest P Z w j 0)) => [|w].
    by rewrite meanZ -averageE zero mxE mulr0.
  by rewrite !mxE big_ord1 !mxE.
rewrite (eq_average _ (Y := fun w => u *m u^T + rest P Z w *m (rest P Z w)^T
    + (u *m (rest P Z w)^T + rest P Z w *m u^T))) => [|w].
  by rewrite !averageD average_const left right !addr0.
have split : Z w = u + rest P Z w by rewrite /rest -/u addrC subrK.
rewrite {1 2}split.
rewrite raddfD /= mulmxDl !mulmxDr -!addrA; congr (_ + _).
by rewrite [RHS]addrC -addrA.
Qed.
Lemma mean_pair : mean P (fun w => dot (X w) (Y w)) = dot (average P X) (average P Y).
Proof. exact: (free_dot apart id id). Qed.
Lemma var_moments (Z : W -> R) : var P Z = mean P (fun w => Z w ^+ 2) - mean P Z ^+ 2.
Proof.
rewrite /var /cov (eq_mean P (Y := fun w => (- 2%:R * mean P Z) * Z w + (Z w ^+ 2 + mean P Z ^+ 2))) => [|w];
  last by ring.
by rewrite mean_lin mean_add mean_const; ring.
Qed.
Lemma tr_covariance (Z : W -> 'cV[R]_n) : \tr (covariance P Z)
  = mean P (fun w => dot (rest P Z w) (rest P Z w)).
Proof.
rewrite /covariance /average raddf_sum /=; apply: eq_bigr => w _; rewrite mxtraceZ; congr (_ * _).
by rewrite dotE mxtrace_mulC.
Qed.
Lemma tr_covariance2 (Z : W -> 'cV[R]_n) (A : 'M[R]_n) : dot (covariance P Z) A
  = mean P (fun w => dot (rest P Z w) (A *m rest P Z w)).
Proof. by rewrite -mean_dotl; apply: eq_mean => w; rewrite dot_mulr trmxK. Qed.
Lemma covariance_tr (Z : W -> 'cV[R]_n) : (covariance P Z)^T = covariance P Z.
Proof.
by rewrite /covariance /average raddf_sum /=; apply: eq_bigr => w _; rewrite linearZ /= trmx_mul trmxK.
Qed.
Lemma var_pair : var P (fun w => dot (X w) (Y w)) = dot (average P X) (covariance P Y *m average P X)
  + dot (average P Y) (covariance P X *m average P Y) + dot (covariance P X) (covariance P Y).
Proof.
rewrite var_moments mean_pair (eq_mean P (Y := fun w => dot (X w *m (X w)^T) (Y w *m (Y w)^T))) => [|w];
  last first.
  by rewrite dot_outer expr2.
rewrite (free_dot apart (fun x => x *m x^T) (fun x => x *m x^T)) !second_moment dotDl !dotDr dot_outer.
rewrite (dot_mulr (average P X)) trmxK (dotC (covariance P X) (_ *m _)) (dot_mulr (average P Y)) trmxK.
by move: (dot _ _) (dot _ _) (dot _ _) (dot _ _) => a b c e; ring.
Qed.
End Pair.

Section Samples.
Variables (R : realFieldType) (W : finType) (P : law R W) (d : nat -> nat).
Variables (B : forall k, 'M[R]_(d k.+1, d k)) (Dz Dj : W -> forall k, 'M[R]_(d k.+1, d k))
  (gz gj : 'cV[R]_(d 0%N)) (k : nat).
Hypothesis ind : independent_noises P Dz Dj k.
Lemma lowered_eq (J J' : forall k, 'M[R]_(d k.+1, d k)) m :
  (forall t, (t < m)%N -> J t = J' t) -> operator J m = operator J' m.
Proof.
elim: m => [|m IH] e; first by rewrite !operator0.
by rewrite !operatorS (e m) // IH // => t tm; apply: e; apply: ltnW.
Qed.
Lemma fresh_z m : (m < k)%N -> free P (lowered B Dz m gz) (Dz ^~ m).
Proof.
move=> mk; apply: (@depends_free _ _ _ _ _ _ (fun i : bool * 'I_k => i.1 && (i.2 < m)%N) _ _ _ _ ind) =>
  w w' e.
  by rewrite /lowered (@lowered_eq _ (plus B (Dz w'))) // => t tm; congr (_ + _);
    exact: (e (true, Ordinal (ltn_trans tm mk)) tm).
by apply: (e (true, Ordinal mk)); rewrite /= ltnn.
Qed.
Lemma fresh_j m : (m < k)%N -> free P (lowered B Dj m gj) (Dj ^~ m).
Proof.
move=> mk; apply: (@depends_free _ _ _ _ _ _ (fun i : bool * 'I_k => ~~ i.1 && (i.2 < m)%N) _ _ _ _ ind) =>
  w w' e.
  by rewrite /lowered (@lowered_eq _ (plus B (Dj w'))) // => t tm; congr (_ + _);
    exact: (e (false, Ordinal (ltn_trans tm mk)) tm).
by apply: (e (false, Ordinal mk)); rewrite /= ltnn.
Qed.
Lemma apart : free P (lowered B Dz k gz) (lowered B Dj k gj).
Proof.
apply: (@depends_free _ _ _ _ _ _ (fun i : bool * 'I_k => i.1) _ _ _ _ ind) => w w' e.
  by rewrite /lowered (@lowered_eq _ (plus B (Dz w'))) // => t tk; congr (_ + _);
    exact: (e (true, Ordinal tk) isT).
by rewrite /lowered (@lowered_eq _ (plus B (Dj w'))) // => t tk; congr (_ + _);
  exact: (e (false, Ordinal tk) isT).
Qed.
End Samples.

Theorem noise_variance : Statements.Moments.noise_variance.
Proof.
move=> R W P d B Dz Dj gz gj k ind centred A u w hz hj Sz Sj.
have cz t := proj1 (centred t); have cj t := proj2 (centred t).
have ez : average P hz = u := average_lowered (fresh_z B gz ind) cz (leqnn k).
have ej : average P hj = w := average_lowered (fresh_j B gj ind) cj (leqnn k).
split; first by rewrite (var_pair (apart B gz gj ind)) ez ej [dot (covariance _ _) _]dotE covariance_tr.
  by rewrite (mean_pair (apart B gz gj ind)) ez ej dot_mull mulmxA.
rewrite (eq_mean P (Y := fun x => \tr (hz x *m (hz x)^T))) => [|x]; last by rewrite dotE mxtrace_mulC.
have -> : mean P (fun x => \tr (hz x *m (hz x)^T)) = \tr (average P (fun x => hz x *m (hz x)^T)).
  by rewrite /average raddf_sum /=; apply: eq_bigr => x _; rewrite mxtraceZ.
rewrite second_moment ez mxtraceD; congr (_ + _).
by rewrite mxtrace_mulC -dotE dot_mull mulmxA.
Qed.

Section Bounds.
Variables (R : rcfType) (W : finType) (P : law R W).
Lemma mean_le (X Y : W -> R) : (forall w, X w <= Y w) -> mean P X <= mean P Y.
Proof. by move=> h; apply: ler_sum => w _; apply: ler_wpmul2l; rewrite ?prob_ge0. Qed.
Lemma gain_sqr m n (A : 'M[R]_(m, n)) c (x : 'cV_n) : gain_le A c -> dot (A *m x) (A *m x)
  <= c ^+ 2 * dot x x.
Proof.
move=> [c0 h]; rewrite -!norm_sqr -exprMn ler_pexpn2r ?nnegrE ?norm_ge0 //; exact: mulr_ge0 (norm_ge0 _).
Qed.
Lemma gain_quad n (A : 'M[R]_n) c (x : 'cV_n) : gain_le A c -> dot x (A *m x) <= c * dot x x.
Proof.
move=> [c0 h]; apply: le_trans (ler_norm _) _; apply: le_trans (cauchy_schwarz _ _) _.
by rewrite -norm_sqr expr2 mulrCA; apply: ler_wpmul2l; rewrite ?norm_ge0.
Qed.
Lemma cov_quad n (Z : W -> 'cV[R]_n) (v : 'cV_n) : dot v (covariance P Z *m v)
  <= dot v v * \tr (covariance P Z).
Proof.
have -> : dot v (covariance P Z *m v) = mean P (fun w => dot v (rest P Z w) ^+ 2).
  have -> : dot v (covariance P Z *m v) = dot (covariance P Z) (v *m v^T) by rewrite dotC dot_mulr.
  by rewrite -mean_dotl; apply: eq_mean => w; rewrite dot_outer -expr2 (dotC (rest _ _ _)).
rewrite tr_covariance -meanZ; apply: mean_le => w.
rewrite -!norm_sqr -exprMn -[X in X <= _]real_normK ?num_real // ler_pexpn2r ?nnegrE ?mulr_ge0 ?norm_ge0 //.
exact: cauchy_schwarz.
Qed.
Lemma tr_covariance_ge0 n (Z : W -> 'cV[R]_n) : 0 <= \tr (covariance P Z).
Proof. by rewrite tr_covariance; apply: mean_ge0 => w; apply: dot_ge0. Qed.
Lemma var_pair_le n (X Y : W -> 'cV[R]_n) : free P X Y -> var P (fun w => dot (X w) (Y w)) <=
  dot (average P X) (average P X) * \tr (covariance P Y)
    + dot (average P Y) (average P Y) * \tr (covariance P X)
  + \tr (covariance P X) * \tr (covariance P Y).
Proof.
move=> fr; rewrite var_pair //; apply: ler_add; first by apply: ler_add; apply: cov_quad.
rewrite tr_covariance2 [\tr (covariance P X)]tr_covariance mulrC -meanZ; apply: mean_le => w.
by rewrite mulrC; apply: cov_quad.
Qed.
End Bounds.

Section Carried.
Variables (R : rcfType) (W : finType) (P : law R W) (d : nat -> nat).
Variables (B : forall k, 'M[R]_(d k.+1, d k)) (D : W -> forall k, 'M[R]_(d k.+1, d k)) (g : 'cV[R]_(d 0%N))
  (k : nat).
Variables (rho s : nat -> R).
Hypothesis fresh : forall m, (m < k)%N -> free P (lowered B D m g) (D ^~ m).
Hypothesis centred : forall t, average P (D ^~ t) = 0.
Hypothesis gains : forall t, gain_le (B t) (rho t).
Hypothesis energies : forall t (x : 'cV_(d t)), dot x (energy P D t *m x) <= s t * dot x x.
Hypothesis s_ge0 : forall t, 0 <= s t.
Local Notation u m := (operator B m *m g).
Local Notation means m := (\prod_(t < m) rho t ^+ 2).
Local Notation whole m := (\prod_(t < m) (rho t ^+ 2 + s t)).
Lemma total_split m : (m <= k)%N -> total P B D g m = dot (u m) (u m) + spread P B D g m.
Proof.
move=> mk; rewrite /total /spread -(mean_const P (dot (u m) (u m))) -mean_add -[RHS]addr0 -(mulr0 2%:R).
have e : mean P (fun w => dot (u m) (lowered B D m g w - u m)) = 0.
  by rewrite mean_dotr averageD average_const (average_lowered fresh centred mk) subrr dot0r.
rewrite -e -meanZ -mean_add; apply: eq_mean => w; rewrite !dotBr !dotBl (dotC (u m) (lowered _ _ _ _ _)).
by move: (dot _ _) (dot _ _) (dot _ _) => x y z; ring.
Qed.
Lemma mean_carried m : dot (u m) (u m) <= means m * dot g g.
Proof.
elim: m => [|m IH]; first by rewrite operator0 mul1mx big_ord0 mul1r.
rewrite operatorS -mulmxA big_ord_recr /= [_ * rho m ^+ 2]mulrC -mulrA;
  apply: le_trans (gain_sqr _ (gains m)) _.
by apply: ler_wpmul2l; rewrite ?sqr_ge0.
Qed.
Lemma spread_carried m : (m <= k)%N -> spread P B D g m <= (whole m - means m) * dot g g.
Proof.
elim: m => [|m IH] mk.
  rewrite !big_ord0 subrr mul0r /spread (eq_mean P (Y := fun=> 0)) ?mean_const // => w.
  by rewrite /lowered !operator0 subrr dot0l.
have {}IH := IH (ltnW mk); have hm := mean_carried m.
have total_le : mean P (fun w => dot (lowered B D m g w) (energy P D m *m lowered B D m g w))
  <= s m * total P B D g m.
  by rewrite /total -meanZ; apply: mean_le => w; apply: energies.
have below : mean P (fun w => dot (B m *m (lowered B D m g w - u m)) (B m *m (lowered B D m g w - u m)))
    <= rho m ^+ 2 * spread P B D g m.
  by rewrite /spread -meanZ; apply: mean_le => w; apply: gain_sqr.
rewrite (spreadS fresh centred mk); apply: le_trans (ler_add below total_le) _.
rewrite (total_split (ltnW mk)) !big_ord_recr /=.
move: (whole m) (means m) (spread _ _ _ _ _) (dot (u m) _) (dot g g) IH hm => V Q T U G IH hm.
have -> : (V * (rho m ^+ 2 + s m) - Q * rho m ^+ 2) * G = rho m ^+ 2 * ((V - Q) * G)
  + s m * (Q * G + (V - Q) * G) by ring.
by apply: ler_add; apply: ler_wpmul2l; rewrite ?sqr_ge0 ?s_ge0 //; apply: ler_add.
Qed.
Lemma covariance_spread : \tr (covariance P (lowered B D k g)) = spread P B D g k.
Proof. by rewrite tr_covariance /spread /rest (average_lowered fresh centred (leqnn k)). Qed.
End Carried.

Lemma noise_bound_energy (R : rcfType) (W : finType) (P : law R W) d (B : forall k, 'M[R]_(d k.+1, d k))
    (Dz Dj : W -> forall k, 'M[R]_(d k.+1, d k)) (gz gj : 'cV[R]_(d 0%N)) k (rho s : nat -> R) :
  independent_noises P Dz Dj k -> centred_noises P Dz Dj -> (forall t, gain_le (B t) (rho t)) ->
    (forall t, 0 <= s t) ->
  (forall t (x : 'cV_(d t)), dot x (energy P Dz t *m x) <= s t * dot x x /\
    dot x (energy P Dj t *m x) <= s t * dot x x) ->
  var P (fun x => dot (lowered B Dz k gz x) (lowered B Dj k gj x))
  <= ((\prod_(t < k) (rho t ^+ 2 + s t)) ^+ 2 - (\prod_(t < k) rho t ^+ 2) ^+ 2) * norm gz ^+ 2 * norm gj ^+
    2.
Proof.
move=> ind centred gains s0 energies.
have cz t := proj1 (centred t); have cj t := proj2 (centred t).
have fz := fresh_z B gz ind; have fj := fresh_j B gj ind.
have sz := spread_carried fz cz gains (fun t x => proj1 (energies t x)) s0 (leqnn k).
have sj := spread_carried fj cj gains (fun t x => proj2 (energies t x)) s0 (leqnn k).
have mz := mean_carried gz gains k; have mj := mean_carried gj gains k.
apply: le_trans (var_pair_le (apart B gz gj ind)) _.
rewrite (average_lowered fz cz (leqnn k)) (average_lowered fj cj (leqnn k)) !norm_sqr.
have tz := tr_covariance_ge0 P (lowered B Dz k gz); have tj := tr_covariance_ge0 P (lowered B Dj k gj).
move: tz tj; rewrite (covariance_spread fz cz) (covariance_spread fj cj) => tz tj.
have uz := dot_ge0 (operator B k *m gz); have uj := dot_ge0 (operator B k *m gj).
move: (\prod_(t < k) (rho t ^+ 2 + s t)) (\prod_(t < k) rho t ^+ 2) (dot (operator B k *m gz) _)
  (dot (operator B k *m gj) _)
  (dot gz gz) (dot gj gj) (spread P B Dz gz k) (spread P B Dj gj k) sz sj mz mj tz tj uz uj
  => V Q mz mj G H sz sj hsz hsj hmz hmj tz tj uz uj.
have -> : (V ^+ 2 - Q ^+ 2) * G * H = Q * G * ((V - Q) * H) + Q * H * ((V - Q) * G)
  + (V - Q) * G * ((V - Q) * H) by ring.
by apply: ler_add; first apply: ler_add; apply: ler_pmul.
Qed.

Lemma noise_factor_rates (R : realFieldType) (r s : R) k : noise_factor (fun=> 1) (fun=> s) k
  = (1 + s ^+ 2) ^+ (2 * k) - 1 /\
  noise_factor (fun=> r) (fun=> s) k <= (r ^+ 2 + s ^+ 2) ^+ (2 * k).
Proof.
rewrite /noise_factor !prodr_const card_ord; split.
  by rewrite expr1n expr1n expr1n -exprM mulnC.
by rewrite -exprM mulnC ler_subl_addr ler_addl sqr_ge0.
Qed.

Theorem noise_bound : Statements.Moments.noise_bound.
Proof.
move=> R W P d B Dz Dj gz gj k rho sigma ind centred gains energies; split; last by move=> r s;
  exact: noise_factor_rates.
apply: (@noise_bound_energy _ _ _ _ _ _ _ _ _ _ _ (fun t => sigma t ^+ 2)) => // [t|t x];
  first exact: sqr_ge0.
by have [hz hj] := energies t; split; apply: gain_quad.
Qed.
(* Independent draws from one law, one for each member of I. *)
Section Draws.
Variables (R : realFieldType) (S : finType) (Q : law R S) (I : finType).
Local Notation outcomes := [finType of {ffun I -> S}].
Lemma draws_ge0 (w : outcomes) : 0 <= \prod_i prob Q (w i).
Proof. by apply: prodr_ge0 => i _; apply: prob_ge0. Qed.
Lemma draws_sum : \sum_(w : outcomes) \prod_i prob Q (w i) = 1.
Proof. by rewrite -(bigA_distr_bigA (fun=> prob Q)); apply: big1 => i _; apply: prob_sum. Qed.
Definition draws := Law draws_ge0 draws_sum.
Lemma draws_prod (h : I -> S -> R) : mean draws (fun w => \prod_i h i (w i)) = \prod_i mean Q (h i).
Proof. by rewrite /mean bigA_distr_bigA; apply: eq_bigr => w _; rewrite big_split. Qed.
Lemma draws_one i (h : S -> R) : mean draws (fun w => h (w i)) = mean Q h.
Proof.
have := draws_prod (fun k => if k == i then h else fun=> 1).
rewrite [RHS](bigD1 i) //= eqxx [X in _ * X]big1 ?mulr1 => [<-|k /negPf ->]; last exact: mean_const.
by apply: eq_mean => w; rewrite (bigD1 i) //= eqxx big1 ?mulr1 // => k /negPf ->.
Qed.
Lemma draws_average i m n (h : S -> 'M[R]_(m, n)) : average draws (fun w => h (w i)) = average Q h.
Proof. by apply/matrixP => k l; rewrite !averageE (draws_one i (fun s => h s k l)). Qed.
Lemma draws_independent (T : I -> eqType) (x : forall i, S -> T i) :
  independent draws (fun i (w : outcomes) => x i (w i)).
Proof.
move=> f; rewrite (draws_prod (fun i s => f i (x i s))); apply: eq_bigr => i _.
by rewrite (draws_one i (fun s => f i (x i s))).
Qed.
Lemma draws_gt0 : (forall s, 0 < prob Q s) -> forall w, 0 < prob draws w.
Proof. by move=> h w; apply: prodr_gt0. Qed.
End Draws.

(* Layers of any width whose noise is plus or minus the identity, by a fair coin. *)
Section Signs.
Variables (R : realFieldType) (n : nat).
Local Notation layers := (fun _ : nat => n).
Lemma coin_sum : \sum_(b : bool) (2%:R^-1 : R) = 1.
Proof. by rewrite big_bool /=; field. Qed.
Definition coin : law R [finType of bool] :=
  @Law _ _ (fun=> 2%:R^-1) (fun=> etrans (invr_ge0 _) (ler0n _ 2)) coin_sum.
Definition signs s (w : {ffun bool * 'I_2 -> bool}) (t : nat) : 'M[R]_n := ((-1) ^+ w (s, inord t))%:M.
Local Notation law := (draws coin [finType of bool * 'I_2]).
Lemma signs_independent : independent_noises (d := layers) law (signs true) (signs false) 2.
Proof.
move=> f; have := @draws_independent R _ coin _ (fun=> [eqType of 'M[R]_n]) (fun _ b => ((-1) ^+ b)%:M) f.
have e i w : noises (d := layers) (signs true) (signs false) i w = ((-1) ^+ w i)%:M.
  by case: i => [[] o]; rewrite /noises /= /signs inord_val.
by move=> h; rewrite (eq_mean _ (fun w => eq_bigr _ (fun i _ => congr1 (f i) (e i w)))) h;
  apply: eq_bigr => i _; apply: eq_mean => w; rewrite e.
Qed.
Lemma signs_centred : centred_noises (d := layers) law (signs true) (signs false).
Proof.
have one s t : average law (signs s ^~ t) = 0.
  rewrite (draws_average coin (s, inord t) (fun b : bool => ((-1) ^+ b)%:M : 'M[R]_n)) /average big_bool /=.
  by rewrite -scalerDr -raddfD /= expr1 addNr raddf0 scaler0.
by move=> t; split; apply: one.
Qed.
Lemma signs_energy s t : energy (d := layers) law (signs s) t = 1%:M.
Proof.
rewrite /energy (eq_average _ (Y := fun=> 1%:M)) ?average_const // => w.
by rewrite /signs tr_scalar_mx -scalar_mxM -expr2 sqrr_sign.
Qed.
End Signs.

(* Layers of width 1: what they carry down is known exactly. *)
Section Scalars.
Variables (R : rcfType) (W : finType) (P : law R W) (b s : nat -> R) (D : W -> nat -> 'M[R]_1) (g : 'cV[R]_1)
  (k : nat).
Local Notation ones := (fun _ : nat => 1%N).
Local Notation B := (fun t => (b t)%:M : 'M[R]_1).
Local Notation h m := (lowered (d := ones) B D m g).
Hypothesis fresh : forall m, (m < k)%N -> free P (h m) (D ^~ m).
Hypothesis centred : forall t, average P (D ^~ t) = 0.
Hypothesis energies : forall t, energy P (d := ones) D t = (s t)%:M.
Lemma dot_one (x y : 'M[R]_1) : dot x y = x 0 0 * y 0 0. Proof. by rewrite /dot !big_ord1. Qed.
Lemma scalar_mean m : dot (operator (d := ones) B m *m g) (operator (d := ones) B m *m g)
  = (\prod_(t < m) b t ^+ 2) * dot g g.
Proof.
elim: m => [|m IH]; first by rewrite operator0 mul1mx big_ord0 mul1r.
by rewrite operatorS -mulmxA mul_scalar_mx dotZl dotZr IH big_ord_recr /=; ring.
Qed.
Lemma scalar_total m : (m <= k)%N -> total P (d := ones) B D g m = (\prod_(t < m) (b t ^+ 2 + s t)) * dot g g.
Proof.
elim: m => [|m IH] mk.
  by rewrite big_ord0 mul1r -[RHS](mean_const P); apply: eq_mean => w; rewrite /lowered operator0 mul1mx.
rewrite (totalS fresh centred mk) energies -mean_add.
rewrite (eq_mean P (Y := fun w => (b m ^+ 2 + s m) * dot (h m w) (h m w))) => [|w].
  by rewrite meanZ -/(total _ _ _ _ _) IH ?(ltnW mk) // big_ord_recr /=; ring.
by rewrite /= !mul_scalar_mx dotZl !dotZr; move: (dot _ _) => x; ring.
Qed.
Lemma scalar_spread : covariance P (h k) 0 0 = (\prod_(t < k) (b t ^+ 2 + s t) - \prod_(t < k) b t ^+ 2)
  * dot g g.
Proof.
have -> : covariance P (h k) 0 0 = spread P (d := ones) B D g k.
  by rewrite -(covariance_spread (d := ones) fresh centred) /mxtrace big_ord1.
have := total_split (d := ones) fresh centred (leqnn k); rewrite scalar_total // scalar_mean mulrBl => ->.
by rewrite addrAC subrr add0r.
Qed.
End Scalars.

Theorem noise_bound_attained : Statements.Moments.noise_bound_attained.
Proof.
move=> R W P b Dz Dj gz gj k sigma ind centred energies B.
have cz t := proj1 (centred t); have cj t := proj2 (centred t).
have fz := fresh_z (d := fun=> 1%N) B gz ind; have fj := fresh_j (d := fun=> 1%N) B gj ind.
have sz := scalar_spread fz cz (fun t => proj1 (energies t)); have sj :=
  scalar_spread fj cj (fun t => proj2 (energies t)).
rewrite (var_pair (apart (d := fun=> 1%N) B gz gj ind)) (average_lowered fz cz (leqnn k))
  (average_lowered fj cj (leqnn k)).
have quad (A : 'M[R]_1) (u : 'cV[R]_1) : dot u (A *m u) = A 0 0 * dot u u.
  by rewrite [A in A *m _]mx11_scalar mul_scalar_mx dotZr.
rewrite !quad (dot_one (covariance _ _)) !scalar_mean sz sj !norm_sqr /noise_factor.
by move: (\prod_(t < k) _) (\prod_(t < k) _) (dot gz gz) (dot gj gj) => V Q x y; ring.
Qed.

Theorem no_schematic_factor : Statements.Moments.no_schematic_factor.
Proof.
move=> R; exists [finType of {ffun bool * 'I_2 -> bool}], (draws (coin R) [finType of bool * 'I_2]).
exists (signs R 1 true), (signs R 1 false) => B rho A M rest.
have ind := @signs_independent R 1; have cen := @signs_centred R 1.
have one s w t : dot (signs R 1 s w t) (signs R 1 s w t) = 1 by rewrite dot_one !mxE mulr1n -expr2 sqrr_sign.
split=> // [t|t|]; first by split=> // v; rewrite mul0mx norm0 mul0r.
  by split; rewrite -[RHS](mean_const (draws (coin R) [finType of bool * 'I_2])); apply: eq_mean => w;
    apply: one.
have zero : operator (d := fun=> 1%N) B 2 = 0 by rewrite operatorS mul0mx.
split.
  have /= := @noise_bound_attained R _ _ (fun=> 0) _ _ 1%:M 1%:M 2%N (fun=> 1) ind cen.
  have -> : (0%:M : 'M[R]_1) = 0 by rewrite raddf0.
  move=> -> => [|t]; last by rewrite expr1n; split; exact: signs_energy.
  by rewrite !norm_sqr dot_one !mxE /noise_factor !big_ord_recr !big_ord0 /=; ring.
rewrite /rest /M /A zero mulmx0 mxtrace0 raddf0 subr0 dot0l add0r /printed_sum /gains big_ord_recr big_ord1
  /=.
by rewrite !big_nat1 expr0n /= mul0r mulr0 !mul0r addr0.
Qed.

(* Linear forms in independent entries that have the moments of a normal law up to the fourth. *)
Section Forms.
Variables (R : realFieldType) (W : finType) (P : law R W) (J : finType) (v : R).
Variables (X : J -> W -> R).
Hypothesis ind : independent P (T := fun=> R) X.
Hypothesis moments : forall k, [/\ mean P (X k) = 0, mean P (fun w => X k w ^+ 2) = v,
  mean P (fun w => X k w ^+ 3) = 0 & mean P (fun w => X k w ^+ 4) = 3%:R * v ^+ 2].
Definition form (s : seq J) (a : J -> R) w := \sum_(k <- s) a k * X k w.
Definition total_of (s : seq J) (a b : J -> R) := \sum_(k <- s) a k * b k.
Lemma form_depends s a : depends (T := fun=> R) X (mem s) (form s a).
Proof. by move=> w w' h; apply: eq_big_seq => k ks; rewrite (h k). Qed.
Lemma form_cons k s a w : form (k :: s) a w = a k * X k w + form s a w. Proof. exact: big_cons. Qed.
Lemma total_cons k s a b : total_of (k :: s) a b = a k * b k + total_of s a b. Proof. exact: big_cons. Qed.
Lemma fresh k s c (f : R -> R) (G : R -> R -> R) a b : k \notin s ->
  mean P (fun w => c * (f (X k w) * G (form s a w) (form s b w)))
  = c * (mean P (fun w => f (X k w)) * mean P (fun w => G (form s a w) (form s b w))).
Proof.
move=> ks; rewrite meanZ; congr (_ * _); apply: (mean_depends ind (A := pred1 k)) => w w' h;
  first by rewrite (h k) /=.
have hs l : l \in s -> X l w = X l w' by move=> ls; apply: h => /=; apply: contraNneq ks => <-.
by congr (G _ _); apply: form_depends.
Qed.
Lemma form_mean s a : mean P (form s a) = 0.
Proof.
rewrite /form mean_sum big1_seq // => k _; rewrite meanZ.
by have [-> _ _ _] := moments k; rewrite mulr0.
Qed.
Lemma form_pair s a b : uniq s -> mean P (fun w => form s a w * form s b w) = v * total_of s a b.
Proof.
elim: s => [_|k s IH /andP [ks us]].
  rewrite /total_of big_nil mulr0 -[RHS](mean_const P); apply: eq_mean => w.
  by rewrite /form !big_nil mulr0.
have [m1 m2 _ _] := moments k.
rewrite (eq_mean P (Y := fun w => a k * b k * (X k w ^+ 2 * 1) + (a k * (X k w * form s b w) +
  (b k * (X k w * form s a w) + 1 * (1 * (form s a w * form s b w)))))) => [|w]; last by rewrite !form_cons;
    ring.
rewrite !mean_add (fresh _ (fun x => x ^+ 2) (fun _ _ => 1) a b ks) (fresh _ id (fun _ y => y) a b ks).
rewrite (fresh _ id (fun x _ => x) a b ks) (fresh _ (fun=> 1) (fun x y => x * y) a b ks) !mean_const m1 m2 IH
  // total_cons.
by ring.
Qed.
Lemma form_fourth s a b : uniq s -> mean P (fun w => form s a w ^+ 2 * form s b w ^+ 2)
  = v ^+ 2 * (total_of s a a * total_of s b b + 2%:R * total_of s a b ^+ 2).
Proof.
elim: s => [_|k s IH /andP [ks us]].
  rewrite /total_of !big_nil mul0r expr0n mulr0 addr0 mulr0 -[RHS](mean_const P); apply: eq_mean => w.
  by rewrite /form !big_nil expr0n mulr0.
have [m1 m2 m3 m4] := moments k; have squares c : mean P (fun w => form s c w ^+ 2) = v * total_of s c c.
  by rewrite -form_pair //; apply: eq_mean => w; rewrite expr2.
rewrite (eq_mean P (Y := fun w => a k ^+ 2 * b k ^+ 2 * (X k w ^+ 4 * 1) + 2%:R * a k * b k ^+ 2 *
  (X k w ^+ 3 * form s a w)
  + 2%:R * a k ^+ 2 * b k * (X k w ^+ 3 * form s b w) + b k ^+ 2 * (X k w ^+ 2 * form s a w ^+ 2)
  + a k ^+ 2 * (X k w ^+ 2 * form s b w ^+ 2) + 4%:R * a k * b k * (X k w ^+ 2 * (form s a w * form s b w))
  + 2%:R * a k * (X k w * (form s a w * form s b w ^+ 2))
    + 2%:R * b k * (X k w * (form s a w ^+ 2 * form s b w))
  + 1 * (1 * (form s a w ^+ 2 * form s b w ^+ 2)))) => [|w]; last by rewrite !form_cons; ring.
rewrite !mean_add (fresh _ (fun x => x ^+ 4) (fun _ _ => 1) a b ks)
  (fresh _ (fun x => x ^+ 3) (fun x _ => x) a b ks).
rewrite (fresh _ (fun x => x ^+ 3) (fun _ y => y) a b ks)
  (fresh _ (fun x => x ^+ 2) (fun x _ => x ^+ 2) a b ks).
rewrite (fresh _ (fun x => x ^+ 2) (fun _ y => y ^+ 2) a b ks)
  (fresh _ (fun x => x ^+ 2) (fun x y => x * y) a b ks).
rewrite (fresh _ id (fun x y => x * y ^+ 2) a b ks) (fresh _ id (fun x y => x ^+ 2 * y) a b ks).
rewrite (fresh _ (fun=> 1) (fun x y => x ^+ 2 * y ^+ 2) a b ks).
rewrite !mean_const m1 m2 m3 m4 !squares form_pair // IH // !total_cons.
by move: (mean _ _) (mean _ _) (total_of _ _ _) (total_of _ _ _) (total_of _ _ _) => x y z t u; ring.
Qed.
Lemma form_var s a b : uniq s -> var P (fun w => form s a w * form s b w)
  = v ^+ 2 * (total_of s a a * total_of s b b + total_of s a b ^+ 2).
Proof.
move=> us; rewrite /var /cov form_pair //.
rewrite (eq_mean P (Y := fun w => form s a w ^+ 2 * form s b w ^+ 2
  + (- 2%:R * (v * total_of s a b) * (form s a w * form s b w) + (v * total_of s a b) ^+ 2))) => [|w];
    last by ring.
by rewrite !mean_add meanZ mean_const form_fourth // form_pair //; ring.
Qed.
End Forms.

Theorem random_weights_variance : Statements.Moments.random_weights_variance.
Proof.
move=> R W P m n M v hz hj bz bj [moments ind] gate below both above.
pose X (x : 'I_m * 'I_n) w := M w x.1 x.2; pose column (i : 'I_n) := [seq (k, i) | k <- enum 'I_m].
have columns i : uniq (column i) by rewrite map_inj_uniq ?enum_uniq // => k l [].
pose at_ (h : 'cV[R]_m) (x : 'I_m * 'I_n) := h x.1 0.
have entries x : [/\ mean P (X x) = 0, mean P (fun w => X x w ^+ 2) = v, mean P (fun w => X x w ^+ 3) = 0
    & mean P (fun w => X x w ^+ 4) = 3%:R * v ^+ 2] by exact: moments.
have formE (h : 'cV[R]_m) i w : dot (col i (M w)) h = form X (column i) (at_ h) w.
  rewrite /form big_map big_enum /dot; apply: eq_bigr => k _.
  by rewrite big_ord1 !mxE mulrC.
have totalE (h g : 'cV[R]_m) i : total_of (column i) (at_ h) (at_ g) = dot h g.
  by rewrite /total_of big_map big_enum /dot; apply: eq_bigr => k _; rewrite big_ord1.
pose on i := (bz i && bj i)%:R : R; pose unit i w :=
  form X (column i) (at_ hz) w * form X (column i) (at_ hj) w.
have belowE w : below w = \sum_i on i * unit i w.
  rewrite /below dot_columns; apply: eq_bigr => i _; rewrite !mxE !formE /on.
  by case: (bz i); case: (bj i); rewrite /= ?mulr0 ?mul0r ?mulr1 ?mul1r.
have onS i : on i * on i = on i by rewrite /on; case: (_ && _); rewrite ?mulr0 ?mulr1.
have onE : \sum_i on i = both%:R by rewrite /both natr_sum.
have meanE : mean P below = both%:R * v * above.
  rewrite (eq_mean P belowE) mean_sum -onE -mulrA mulr_suml; apply: eq_bigr => i _.
  by rewrite meanZ (form_pair ind entries) // totalE.
have varE : var P below = both%:R * v ^+ 2 * (norm hz ^+ 2 * norm hj ^+ 2 + above ^+ 2).
  transitivity (var P (fun w => \sum_i on i * unit i w)); first exact: eq_cov.
  rewrite var_sum -onE -mulrA mulr_suml; apply: eq_bigr => i _.
  rewrite (bigD1 i) //= big1 => [|k ki].
    by rewrite addr0 onS -/(var P (unit i)) (form_var ind entries) // !totalE !norm_sqr.
  rewrite [cov _ _ _](_ : _ = 0) ?mulr0 // /cov.
  have own j w w' : (forall x : 'I_m * 'I_n, x.2 == j -> X x w = X x w') -> unit j w = unit j w'.
    move=> h; have hs x : x \in column j -> X x w = X x w' by move=> /mapP [y _ ->]; apply: h.
    by rewrite /unit; congr (_ * _); apply: form_depends hs.
  rewrite (mean_depends ind (A := fun x => x.2 == i)) => [|w w' h|w w' h].
  - by rewrite mean_add mean_const subrr mul0r.
  - by rewrite (own i w w').
  by rewrite (own k w w') // => x /eqP xk; apply: h; rewrite /= xk.
split=> //; rewrite meanE varE => ne.
have /andP [/andP [b0 v0] a0] : (both%:R != 0 :> R) && (v != 0) && (above != 0)
  by rewrite -!negb_or -!mulf_eq0.
rewrite /cos -/above; have nz : norm hz != 0.
  by apply: contraNneq a0 => /eqP; rewrite norm_eq0 /above => /eqP ->; rewrite dot0l.
have nj : norm hj != 0.
  by apply: contraNneq a0 => /eqP; rewrite norm_eq0 /above => /eqP ->; rewrite dot0r.
by field; rewrite b0 v0 a0 nz nj.
Qed.
